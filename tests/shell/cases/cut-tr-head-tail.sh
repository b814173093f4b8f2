# cut, tr, head, tail, wc, nl, tac, rev, fold, paste, expand.
echo a:b:c:d | cut -d: -f2,4; echo abcdef | cut -c2-4; echo a:b | cut -d: -f1- ; echo abc | tr a-c A-C; echo aabbcc | tr -s a-c; echo a1b2 | tr -d 0-9; echo hello | tr -c 'a-y\n' X
seq 1 20 >n; head -n 3 n; head -c 5 n; head -n -17 n; tail -n 2 n; tail -n +19 n; tail -c 3 n; wc -l n; wc -w <n; wc -c n; wc n /dev/null
tac n | head -n 1; echo abc | rev; echo abcdefghij | fold -w 4; paste n n | head -n 2; paste -s -d, n; printf 'a\tb\n' | expand -t 4; printf '        x\n' | unexpand; nl -ba n | tail -n 1; printf 'x' | wc -l
