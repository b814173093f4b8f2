# ulimit.
ulimit -n 20; ulimit -n; (i=3; while [ $i -lt 30 ]; do eval "exec $i</dev/null" 2>/dev/null || break; i=$((i + 1)); done; echo stopped) 2>/dev/null; ulimit -Hn 2>/dev/null
(ulimit -c 0; ulimit -c); (ulimit -s 1024; ulimit -s; sh -c 'echo small stack'); (ulimit -v 100; sh -c true) 2>/dev/null; echo $(($? != 0)); ulimit -u >/dev/null; echo $?
