# grep.
printf 'apple\nBanana\ncherry pie\napricot\n\n' >f; grep a f; grep -c a f; grep -v a f; grep -i b f; grep -n r f; grep -x apple f; grep -w pie f; grep -o 'ap[a-z]*' f
grep -E 'ap|ch' f; grep -F . f; echo $?; grep -q a f; echo $?; grep -l a f /dev/null; grep -h e f f | wc -l; grep -e apple -e Ban f; grep '^$' f | wc -l; grep -A1 Ban f; grep -B1 cherry f; grep -m1 a f
grep x none 2>/dev/null; echo $?; mkdir d; echo deep >d/x; grep -r deep d; echo 'a.b' | grep 'a\.b'; echo aab | grep -E '^a{2}b$'; grep '\(' f 2>/dev/null; echo $?
