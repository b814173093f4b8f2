# read.
printf 'a b c\nd\\\ne\n' >f; { read x y; echo "$x|$y"; read z; echo "$z"; read w; echo $? "$w"; } <f; { read -r x; read -r x; echo "$x"; } <f
echo 'a:b:c' | { IFS=: read a b c; echo $a $b $c; }; printf 'no newline' | { read x; echo $? "$x"; }; printf 'abcdef' | { read -n 3 x; echo $x; }; read x </dev/null; echo $?
printf 'x\0y' | tr '\0' '\n' | while read l; do echo "<$l>"; done; read -t 0.1 x <>/dev/zero 2>/dev/null; (sleep 5 | read -t 0.1 x; echo $?) 2>/dev/null
