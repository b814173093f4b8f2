# Killing background jobs and what wait says.
sleep 100 & p=$!; kill $p; wait $p; echo $?
sleep 100 & p=$!; kill -9 $p; wait $p 2>/dev/null; echo $?
sleep 100 & p=$!; kill -STOP $p; kill -0 $p; echo $?; kill -CONT $p; kill -INT $p; kill -TERM $p; wait $p; echo $?
kill -0 99999 2>/dev/null; echo $?
kill -l 9 15; sh -c 'kill -s USR2 $$'; echo $?
