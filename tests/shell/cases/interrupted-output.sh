# Output of killed pipelines arrives in order and complete.
(for i in 1 2 3; do echo $i; sleep 0.05; done; exec sh -c 'kill -TERM $$') | cat;  sh -c 'echo before; kill -9 $$; echo never' | cat; echo $?; sh -c 'printf partial; exit 2'; echo $?; (echo a; exec sh -c 'echo b; kill -ABRT $$') 2>/dev/null | cat; sh -c 'echo 1; (echo 2); echo 3 | cat; echo $(echo 4)'
