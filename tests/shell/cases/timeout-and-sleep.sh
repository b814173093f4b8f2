# timeout, sleep, usleep.
timeout 5 true; echo $?; timeout 5 sh -c 'exit 7'; echo $?; timeout 0.2 sleep 100; echo $?; timeout -s KILL 0.2 sleep 100; echo $?; sleep 0; echo $?; sleep 0.05 0.05 && echo slept; sleep x 2>/dev/null; echo $?; usleep 1000; echo $?
s=$(date +%s); sleep 1; e=$(date +%s); echo $((e - s >= 1 && e - s < 30))
timeout 1 sh -c 'trap "" TERM; sleep 2; echo survived'; echo $?
