# Megabytes through pipes of several stages, far beyond a pipe's capacity.
dd if=/dev/zero bs=1024 count=3000 2>/dev/null | tr '\0' x | wc -c
seq 1 100000 | md5sum
seq 1 200000 | sort -rn | head -n 3
yes ferry | head -n 50000 | cat | cat | cat | wc
seq 1 50000 | awk '{ s += $1 } END { print s }'
