# tee and fifos between processes.
seq 1 5 | tee a b | wc -l; cat a | md5sum; md5sum <b; echo more | tee -a a >/dev/null; tail -n 1 a
mkfifo p; (seq 1 1000 >p) & md5sum <p; wait; cat p >out & echo through >p; wait; cat out; (echo 1; sleep 0.1; echo 2) >p & while read l; do echo "got $l"; done <p; wait
mkfifo q r; (while read x; do echo $((x * x)); done <q >r) & exec 3>q 4<r; for i in 3 4 5; do echo $i >&3; read y <&4; echo $y; done; exec 3>&- 4<&-; wait
