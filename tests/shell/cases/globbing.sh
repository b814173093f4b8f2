# File name patterns.
touch a.c b.c ab.h '.hidden' 'with space' '[x]'; mkdir d e; touch d/1 e/2; echo *; echo *.c; echo ?.c; echo [ab].c; echo [!a]*; echo */*; echo .h*; echo nothing*; echo '*.c'; echo "*".c; for f in *; do echo "<$f>"; done; set -f; echo *; set +f; echo d/*; echo \[x\]; case a.c in *.c) echo match ;; esac
x='*.c'; echo $x; echo "$x"; IFS=:; y='a.c:b.c'; ls $y
