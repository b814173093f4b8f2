# A pipeline in the background is waited for as a whole; SIGINT is ignored by background jobs.
sh -c 'sleep 0.1 & sleep 0.2 & wait; echo both'
sh -c '(trap "echo term >&2; exit 1" TERM; touch ready; while :; do sleep 0.02; done) 2>trapped & p=$!; until [ -e ready ]; do sleep 0.02; done; kill $p; wait $p; echo $?; cat trapped'
