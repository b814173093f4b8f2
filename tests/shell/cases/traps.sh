# trap: EXIT, signals, ignored, reset, in subshells.
sh -c 'trap "echo bye" EXIT; echo hi'
sh -c 'trap "echo bye; exit 3" EXIT; exit 5'; echo $?
sh -c 'trap "echo got TERM" TERM; kill -TERM $$; echo after'
sh -c 'trap "" TERM; kill -TERM $$; echo survived'
sh -c 'trap "echo usr; exit 7" USR1; kill -USR1 $$; echo no'; echo $?
sh -c 'trap "echo x" INT; trap - INT; kill -INT $$; echo no'; echo $?
sh -c 'trap "echo child done" USR1; (sleep 0.1; kill -USR1 $$) & wait $!; wait; echo end'
sh -c 'trap "echo 0" EXIT; (trap - EXIT; echo sub); echo main'
trap 'echo two words' HUP; trap
