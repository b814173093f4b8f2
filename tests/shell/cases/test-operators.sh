# test and [ with files, strings and numbers.
mkdir d; touch f; echo x >g; ln -s f s; ln -s none dangling; mkfifo p; chmod 4711 g
for o in -e -f -d -h -L -p -s -r -w -x -u -g -k -b -c; do
    for n in d f g s dangling p /dev/null; do test $o $n && echo -n 1 || echo -n 0; done; echo " $o"
done
[ a = a ]; echo $?; [ a != a ]; echo $?; [ -z '' ]; echo $?; [ -n '' ]; echo $?
[ 10 -gt 9 ]; echo $?; [ 10 -lt 9 ]; echo $?; [ a \< b ]; echo $?; [ 1 -eq 1 -a 2 -eq 3 ]; echo $?
[ ! -e none ]; echo $?; [ \( a = b \) -o c = c ]; echo $?; [ x -eq 1 ] 2>/dev/null; echo $?
touch -d '2001-01-01 00:00:00' old; touch -d '2002-01-01 00:00:00' new
[ new -nt old ]; echo $?; [ new -ot old ]; echo $?; ln f hard; [ f -ef hard ]; echo $?
