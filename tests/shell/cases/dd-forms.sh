# dd with blocks, skips, seeks, conversions.
seq 1 100 >in; dd if=in bs=10 count=3 2>/dev/null; echo; dd if=in bs=1 skip=20 count=10 2>/dev/null; echo
dd if=in of=out bs=7 2>/dev/null; cmp in out; echo $?; echo XXX | dd of=out bs=1 seek=5 conv=notrunc 2>/dev/null; head -n 5 out
dd if=/dev/zero bs=4096 count=1000 2>/dev/null | wc -c; dd if=in bs=100 2>&1 >/dev/null | head -n 2
dd if=none 2>/dev/null; echo $?; echo abc | dd conv=swab 2>/dev/null; dd if=/dev/full of=x bs=10 count=1 2>/dev/null; stat -c %s x; echo y >/dev/full; echo $?
