# awk.
seq 1 5 | awk '{ s += $1; p = NR == 1 ? $1 : p * $1 } END { print s, p, NR }'
printf 'a:1\nb:2\na:3\n' | awk -F: '{ t[$1] += $2 } END { for (k in t) print k, t[k] }' | sort
echo 'one two three' | awk '{ print NF, $2, length($3), toupper($1), substr($0, 5, 3), index($0, "two") }'
awk 'BEGIN { printf "%05.2f|%-5s|%5d|%c|%x\n", 3.14159, "ab", 42, 65, 255; print 1e3, 0.1 + 0.2, int(-3.7), 2 ^ 10 }'
echo 'a1b22c333' | awk '{ gsub(/[0-9]+/, "<&>"); print; n = split("x,y,z", a, ","); print n, a[3]; print match("foobar", /o+/), RSTART, RLENGTH }'
seq 1 20 | awk 'NR % 5 == 0 { print; next } /^1$/ { print "one" } END { exit 3 }'; echo $?
awk 'function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(15) }'; awk 'BEGIN { "echo cmd" | getline x; print x; print "b\na" | "sort"; close("sort"); while ((getline l < "none") > 0); print "done" }'
awk -v v=val 'BEGIN { print v, ENVIRON["HOME"], ARGC }' x y
