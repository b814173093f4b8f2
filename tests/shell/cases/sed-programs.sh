# sed.
seq 1 10 >n; sed -n 3p n; sed '2,9d' n; sed -n '/5/,/7/p' n; sed 's/1/one/' n | head -n 1; sed '$!d' n; sed -n '$=' n
echo 'hello world' | sed 's/\(hello\) \(world\)/\2 \1/; s/o/0/g; y/l/L/'; echo abc | sed -E 's/(a)(b)/\2\1/'; echo path | sed 's|p|/|'
printf 'a\nb\nc\n' | sed 'N;s/\n/+/'; printf 'x\n' | sed 'i\
before
a\
after'; sed -i 's/^/L/' n; tail -n 1 n; echo aaa | sed 's/a/b/2'; printf '1\n2\n' | sed -n 'h;$!d;G;p'
echo abc | sed -n 's/b/X/w out'; cat out; printf 'a\nb\n' | sed 's/a/&&/;t;s/^/no/'; sed 's/x' n 2>/dev/null; echo $?
