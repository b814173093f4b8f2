#!/bin/sh
# Runs the scripts of cases/ on this machine's Linux with its /bin/busybox and records OUTDIR/NAME.out
# (standard output, then `exit N`): what Ferry's run must equal. They run in a fresh root of their own
# (a tmpfs with busybox and its applets, /proc, /dev, /tmp) and in namespaces of their own.
# usage: tests/shell/run-linux.sh OUTDIR [NAME...]
set -eu
[ $# -ge 1 ] || { echo "usage: $0 OUTDIR [NAME...]" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "$0: the scripts expect to be root: run it as root" >&2; exit 77; }
[ -x /bin/busybox ] || { echo "$0: needs /bin/busybox (Debian package busybox-static)" >&2; exit 69; }
out=$1
shift
mkdir -p "$out"
export here
setsid -w unshare --mount --pid --fork --uts --ipc --net --kill-child sh -eu -c '
    mount --make-rprivate /
    root=/mnt
    mount -t tmpfs tmpfs "$root"
    mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/tmp" "$root/etc" "$root/tests"
    chmod 1777 "$root/tmp"
    cp /bin/busybox "$root/bin/busybox"
    for applet in $(/bin/busybox --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    (
        cd "$root/dev"
        for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
            mknod -m 666 "${node% *}" c 1 "${node#* }"
        done
        mknod -m 666 tty c 5 0
        mkdir pts shm
        mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts pts
        ln -s pts/ptmx ptmx
        ln -s /proc/self/fd fd
        for number in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${number%:*}" "${number#*:}"; done
    )
    cp -r "$here/cases" "$here/run-all.sh" "$root/tests/"
    exec env -i HOME=/ PATH=/bin ${SHELL_DEADLINE:+SHELL_DEADLINE=$SHELL_DEADLINE} \
        /bin/busybox chroot "$root" /bin/sh /tests/run-all.sh "$@"
' run "$@" </dev/null >"$out/.all"
"$here/split.sh" "$out" <"$out/.all"
rm -f "$out/.all"
slow=$(grep -lx 'exit 137' "$out"/*.out || true)
[ -z "$slow" ] || { echo "$0: killed: $slow" >&2; exit 1; }
echo "$(ls "$out" | grep -c '\.out$') outputs in $out"
