# Lines and words of a hundred thousand bytes.
head -c 100000 /dev/zero | tr '\0' x >l; echo >>l; wc l; sed 's/x/y/g' l | tr -d '\n' | wc -c; awk '{ print length($0) }' l; head -c 3000 l | { read w; echo ${#w}; echo "$w" | cut -c 2990-; }; v=$(cat l); sh -c 'echo ${#1}' x "$v"; grep -c x l; sort l | md5sum; env X="$v" sh -c 'echo ${#X}'; /bin/echo $(seq 1 20000) | wc -w
