# for, while, until, break, continue, nested, with redirection.
for i in 1 2 3 4 5; do [ $i = 2 ] && continue; [ $i = 5 ] && break; echo $i; done
i=0; while [ $i -lt 3 ]; do i=$((i + 1)); echo w$i; done
i=3; until [ $i = 0 ]; do i=$((i - 1)); done; echo $i
for a in 1 2 3; do for b in x y z; do [ $b = y ] && continue 2; [ $a = 3 ] && break 2; echo $a$b; done; done
for f in a b c; do echo $f; done >out; cat out
seq 1 3 | while read n; do echo "n=$n"; done
for i in; do echo never; done; echo $?
