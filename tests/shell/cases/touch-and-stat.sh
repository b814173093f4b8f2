# touch with fixed times and stat formats that are the same everywhere.
export TZ=UTC0
touch -d '2010-10-10 10:10:10' f; stat -c '%n %s %a %A %F %U %G %h %Y' f
echo hello >>f; touch -r f g 2>/dev/null || touch g; stat -c '%s %F' f
mkdir -m 750 d; stat -c '%a %F' d; ln -s f link; stat -c '%N %F' link; stat -L -c '%F' link
touch -t 200102030405.06 t; stat -c %Y t; touch -c none; [ -e none ]; echo $?
mkfifo p; stat -c %F p /dev/null /dev/zero; stat none 2>/dev/null; echo $?
stat -f -c %T . ; stat -c '%t %T' /dev/null
