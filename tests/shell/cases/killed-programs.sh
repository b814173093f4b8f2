# Statuses of programs that faults and signals kill.
for s in HUP INT QUIT ABRT KILL USR1 SEGV USR2 PIPE ALRM TERM; do sh -c "kill -$s \$\$" 2>/dev/null; echo $s $?; done
(ulimit -t 1; while :; do :; done) 2>/dev/null; echo $?; (ulimit -f 1; dd if=/dev/zero of=f bs=1024 count=2 2>/dev/null; echo after $?); stat -c %s f
