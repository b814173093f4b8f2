# jobs, several waits, $!.
sleep 0.3 & sleep 0.3 & jobs | wc -l; wait; jobs | wc -l; (exit 1) & x=$!; (exit 2) & y=$!; wait $y; echo $?; wait $x; echo $?; for i in 1 2 3 4 5; do (exit $i) & done; wait; echo $?; sh -c 'sleep 0.1 & wait $!; echo $?; echo $! | grep -c "[0-9]"'
i=0; while [ $i -lt 50 ]; do (echo $i >>many) & i=$((i + 1)); done; wait; sort -n many | md5sum; wc -l <many
