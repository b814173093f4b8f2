# sort and uniq.
printf '10\n9\n2\n33\n1\n' >n; sort n | tr '\n' ' '; sort -n n | tr '\n' ' '; sort -rn n | tr '\n' ' '; echo
printf 'b 2\na 10\nc 1\na 9\n' >k; sort k; sort -k2n k; sort -k1,1 -k2n k; sort -t ' ' -k2 k; printf 'b\na\nb\na\na\n' | sort | uniq -c; printf 'b\na\nb\n' | sort -u; printf 'a\na\nb\n' | uniq -d; printf 'a\na\nb\n' | uniq -u
printf 'B\na\nC\n' | sort -f; sort -c n 2>/dev/null; echo $?; sort -n n >s; sort -nc s; echo $?; seq 1 30000 | sort -r | tail -n 1; printf 'z\n' | sort -o o; cat o
