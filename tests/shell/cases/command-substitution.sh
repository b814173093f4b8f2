# Large and nested command substitution.
x=$(seq 1 50000); echo ${#x}; echo "$(printf 'a\n\n\n')|"; y=$(cat <<END
inside
END
); echo $y; echo $(echo a; echo b); z=$(exit 3)$(exit 4); echo $?; echo "$(echo '$HOME' "'q'")"; f() { echo out; echo err >&2; }; v=$(f 2>&1); echo $v; echo $(seq 1 3 | while read n; do echo $((n * n)); done); echo ${#y} $(echo ")" ; echo "(")
