# Functions: arguments, return, recursion, local variables, redirection of a function.
fact() { if [ "$1" -le 1 ]; then echo 1; else echo $(( $1 * $(fact $(( $1 - 1 ))) )); fi; }
fact 10
f() { local x=inner; y=changed; return 42; }
x=outer; y=old; f; echo $? $x $y
g() { echo to file; echo more; } >gout; g; cat gout
h() ( exit 9 ); h; echo $?
count() { echo $#; }; count; count a "b c"; count "$@"
