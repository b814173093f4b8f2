# Background pipelines and wait with statuses.
(sleep 0.1; exit 4) & a=$!
(exit 5) & b=$!
wait $a; echo $?
wait $b; echo $?
seq 1 1000 | sort -n | tail -n 1 >last & wait $!; echo $? $(cat last)
(sleep 0.1; echo one >>log) & (sleep 0.7; echo two >>log) & (sleep 1.3; echo three >>log) &
wait; echo $?; cat log
wait 99999; echo $?
