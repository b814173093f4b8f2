# Deep recursion of functions and of processes.
f() { [ $1 -eq 0 ] && echo bottom || f $(($1 - 1)); }; f 500; cat >r <<'END'
[ $1 -eq 0 ] && echo deepest || sh r $(($1 - 1))
exit $(($1 % 256))
END
sh r 40; echo $?; g() { [ $1 -eq 0 ] && echo $2 || g $(($1 - 1)) $(($2 + 2)); }; g 300 0
