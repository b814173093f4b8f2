# The environment of children.
export A=1 B='two words'; unset PWD OLDPWD SHLVL; env | grep -v -e '^_=' -e PWD -e SHLVL | sort; env -i X=y env; env -u A sh -c 'echo ${A-unset} $B'; C=3 sh -c 'echo $C'; echo ${C-unset}; sh -c 'echo $0 $#' name a b
printenv A 2>/dev/null; sh -c 'export D=4; sh -c "echo \$D"'; env nosuchcommand 2>/dev/null; echo $?; readonly R=1; (R=2) 2>/dev/null; echo $?; export -p | grep ' B='; cat /proc/self/environ | tr '\0' '\n' | grep -e '^HOME=' -e '^A='
