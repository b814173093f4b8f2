# diff, cmp, comm-like.
seq 1 10 >a; sed 's/5/five/' a >b; diff a b; echo $?; diff a a; echo $?; diff -q a b; diff -u a b | tail -n +3; cmp a b; echo $?; cmp -s a a; echo $?; cmp a none 2>/dev/null; echo $?
mkdir d e; echo x >d/f; echo y >e/f; touch d/only; diff -r d e | grep -v '^diff'; diff -rq d e; printf 'x' >s; printf 'xy' >t; cmp s t 2>&1; cmp -l s t 2>/dev/null; echo $?
