# Subshells keep their changes; groups do not; exit statuses.
x=1; (x=2; cd /; echo $x); echo $x; pwd | sed 's|.*/||'
{ x=3; }; echo $x
(exit 12); echo $?
echo $(exit 13; echo no) $?; v=$(exit 14); echo $?
(set -- a b; echo $#); echo $#
(umask 077; umask); umask
