# Descriptors beyond the standard three.
exec 3>a 4>b; echo 3 >&3; echo 4 >&4; { echo x >&3; } 3>&4; exec 3>&- 4>&-; cat a b; f() { echo out; echo err >&2; }; f 3>&1 1>&2 2>&3 3>&- 2>/dev/null; (f 2>&1 >/dev/null) | sed 's/^/piped /'; exec 5<a; cat 0<&5; exec 5<&-; cat a 9>&- ; ls -l /proc/self/fd/1 | grep -c pipe; echo z | { exec 0<&-; cat 2>/dev/null; echo $?; }
echo shared >s; { head -c 2; head -c 2; } <s; echo; { read a; read b; echo $a $b; } <<END
1
2
END
