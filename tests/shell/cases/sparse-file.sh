# Files with holes.
dd if=/dev/zero of=s bs=1 count=1 seek=10485760 2>/dev/null; stat -c %s s; du -k s | awk '{ print ($1 < 100) }'
head -c 100 s | od -c | head -n 2; tail -c 2 s | od -An -tx1; truncate -s 5000000 t; stat -c %s t; md5sum <t
truncate -s 3 t; od -An -tx1 t; cmp s s && echo same
