# setsid, ignored hang-ups, time.
sh -c 'trap "" HUP; sh -c "kill -HUP \$\$; echo alive"'; sh -c 'kill -HUP $$; echo no'; echo $?; setsid sh -c 'echo in session'; setsid sh -c 'exit 3'; echo $?
time true 2>/dev/null; echo $?; sh -c 'time -p true' 2>&1 | grep -c real; setsid sh -c 'awk "{ print (\$6 == \$1 || \$6 != 0) }" /proc/self/stat'; renice -n 3 -p $$ >/dev/null 2>&1; awk '{ print $19 }' /proc/$$/stat
