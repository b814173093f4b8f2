# Every redirection: truncate, append, duplicate, close, read-write, here, order of evaluation.
echo one >f; echo two >>f; cat f
echo three >|f; cat <f
{ echo out; echo err >&2; } >both 2>&1; cat both
{ echo out; echo err >&2; } 2>&1 >only; echo; cat only
exec 3>third; echo x >&3; echo y >&3; exec 3>&-; cat third
(echo z >&3) 2>/dev/null; echo $?
exec 4<f; read a <&4; echo "$a"; exec 4<&-
echo 0123456789 >rw; exec 5<>rw; dd bs=1 count=3 <&5 2>/dev/null; echo; echo -n XY >&5; exec 5>&-; cat rw
set -C; (echo no >f) 2>/dev/null; echo $?; set +C
: >empty; wc -c <empty
(cat <missing) 2>/dev/null; echo $?
