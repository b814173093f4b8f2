# Processes as ps and pidof see them.
sleep 50 & p=$!; sleep 0.2; ps -o pid,comm | awk -v p=$p '$1 == p { print $2 }'; tr '\0' ' ' </proc/$p/cmdline; echo; awk '{ print $3 }' /proc/$p/stat; kill -STOP $p; sleep 0.1; awk '{ print $3 }' /proc/$p/stat; kill -CONT $p; kill $p; wait $p; echo $?; [ -d /proc/$p ]; echo $?
sh -c 'exec -a name sleep 0' 2>/dev/null; ps -o ppid,pid | awk -v p=$$ '$2 == p { n++ } END { print n }'; (exit 3) & q=$!; sleep 0.1; grep State /proc/$q/status 2>/dev/null | awk '{ print $2 }'; wait $q; echo $?
