# Mounting a tmpfs on a directory (the runner's namespace is its own).
mkdir m; echo below >m/f; mount -t tmpfs tmpfs m; echo $?; ls m; echo above >m/g; cat m/g; grep -c "$(pwd)/m tmpfs" /proc/mounts; (cd m; umount ../m 2>/dev/null; echo $((${?} != 0))); umount m; echo $?; ls m; cat m/f; umount m 2>/dev/null; echo $((${?} != 0)); mount -t nosuchfs x m 2>/dev/null; echo $((${?} != 0)); mount -t tmpfs tmpfs none 2>/dev/null; echo $((${?} != 0))
mount -t tmpfs -o size=64k tmpfs m; dd if=/dev/zero of=m/big bs=1024 count=200 2>/dev/null; echo $?; stat -c %s m/big; umount m
