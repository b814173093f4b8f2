# set -e, where it acts and where it does not.
sh -c 'set -e; true; false; echo no'; echo $?
sh -c 'set -e; if false; then :; fi; false || true; ! true; echo yes'; echo $?
sh -c 'set -e; false | true; echo yes'; echo $?
sh -c 'set -e; f() { false; echo in; }; f; echo no'; echo $?
sh -c 'set -e; (false); echo no'; echo $?
sh -c 'set -u; echo $nothing; echo no' 2>/dev/null; echo $?
sh -c 'set -x; echo traced' 2>&1
