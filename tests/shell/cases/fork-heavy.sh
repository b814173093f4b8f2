# Many short processes.
i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done; echo $i; i=0; while [ $i -lt 200 ]; do (exit $((i % 7))); s=$((${s:-0} + $?)); i=$((i + 1)); done; echo $s; i=0; while [ $i -lt 100 ]; do x=$(echo $i); i=$((i + 1)); done; echo $x; seq 1 100 | xargs -n 1 echo | wc -l
