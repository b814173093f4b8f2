# seq and expr.
seq 5; seq 2 5; seq 10 -3 1; seq -w 8 11; seq -s , 1 5
expr 1 + 2; expr 7 \* 6; expr 17 / 5; expr 17 % 5; expr 5 \> 3; expr a = b; echo $?
expr length abcdef; expr substr abcdef 2 3; expr index abcdef cd; expr abc123 : '[a-z]*'; expr abc123 : '[a-z]*\([0-9]*\)'
expr 1 / 0 2>/dev/null; echo $?
