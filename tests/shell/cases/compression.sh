# gzip, bzip2, xz, and their damage.
seq 1 20000 >n; gzip -c n >n.gz; gunzip -c n.gz | cmp - n; echo $?; bzip2 -c n | bunzip2 | md5sum; md5sum <n; zcat n.gz | tail -n 1; gzip n; ls; gunzip n.gz; ls
gzip -c n | head -c 100 | gunzip >/dev/null 2>&1; echo $?; echo notgz | gunzip 2>/dev/null; echo $?; dd if=/dev/zero bs=1024 count=2000 2>/dev/null | gzip | gunzip | wc -c; gzip -t n.bz 2>/dev/null; echo $?
