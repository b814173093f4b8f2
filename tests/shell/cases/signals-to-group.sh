# A pipeline in the background is waited for as a whole; SIGINT is ignored by background jobs.
sh -c 'sleep 0.1 & sleep 0.2 & wait; echo both'
sh -c '(trap "echo term >&2; exit 1" TERM; while :; do sleep 0.02; done) 2>trapped & p=$!; sleep 0.1; kill $p; wait $p; echo $?; cat trapped'
