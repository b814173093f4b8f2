# A reader that leaves early ends the writer by SIGPIPE.
yes | head -n 2
sh -c 'yes; echo $? >status' | head -n 1; cat status 2>/dev/null
(trap '' PIPE; i=0; while echo line 2>/dev/null; do i=1; done; echo ended $? >status2) | head -n 1
until [ -s status2 ]; do sleep 0.02; done; cat status2
seq 1 1000000 | sed 3q
