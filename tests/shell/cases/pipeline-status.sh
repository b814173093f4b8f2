# Exit statuses of pipelines, negation, pipefail, lists.
true | false; echo $?
false | true; echo $?
! true; echo $?
! false | false; echo $?
set -o pipefail; false | true; echo $?; (exit 7) | (exit 3) | true; echo $?; set +o pipefail
true && echo and; false || echo or; false && echo no || echo last
(exit 300); echo $?
sh -c 'kill -TERM $$'; echo $?
sh -c 'kill -KILL $$'; echo $?
/no/such/command 2>/dev/null; echo $?
nosuchcommand 2>/dev/null; echo $?
touch plain; ./plain 2>/dev/null; echo $?
