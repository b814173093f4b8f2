# Megabytes through a fifo with several readers and writers.
mkfifo p; dd if=/dev/zero bs=65536 count=40 of=p 2>/dev/null & wc -c <p; wait
(seq 1 3000 >p) & (seq 3001 6000 >p) & sleep 0.2; sort -n <p | wc -l; wait
