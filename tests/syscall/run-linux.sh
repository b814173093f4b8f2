#!/bin/sh
# Builds the system-call tests and runs them on this machine's Linux, which must pass all of them.
# They run in namespaces of their own (mounts, processes, host name, IPC, network) on a fresh tmpfs
# at /tmp and with a /dev of their own, so nothing of the machine is touched and nothing outlives the run.
# usage: tests/syscall/run-linux.sh [OUTDIR [PROGRAM [CASE...]]]     PROGRAM as in musl/io, or io for both
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${TMPDIR:-/tmp}/ferry-syscall-tests}
[ $# -eq 0 ] || shift
"$here/build.sh" "$out"
out=$(cd "$out" && pwd)
[ "$(id -u)" = 0 ] || { echo "$0: the cases need root: run it as root" >&2; exit 77; }

exec env -i PATH=/bin:/usr/bin HOME=/ HARNESS_DEADLINE="${HARNESS_DEADLINE:-60}" \
    setsid -w unshare --mount --pid --fork --uts --ipc --net --kill-child sh -eu -c '
    out=$1; shift
    mount --make-rprivate /
    mount --bind "$out" /mnt
    mount -t proc proc /proc
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    # Devices of its own: a case may change the mode of a node, and terminals are numbered from 0.
    mount -t tmpfs -o mode=755 tmpfs /dev
    (
        cd /dev
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
    cd /tmp
    if [ $# -gt 0 ]; then program=$1; shift; else program=; fi
    case $program in
        "") set -- ; list=$(cd /mnt && ls -d musl/* glibc/* | grep -v -e "/stress$" -e "/race$" -e "/fuzz$") ;;
        */*) list=$program ;;
        *) list="musl/$program glibc/$program" ;;
    esac
    failed=0 programs=0
    for program in $list; do
        programs=$((programs + 1))
        echo "# $program"
        "/mnt/$program" "$@" </dev/null >/tmp/.report 2>&1 || { failed=$((failed + 1)); }
        cat /tmp/.report
        cat /tmp/.report >>/tmp/.all
    done
    passed=$(grep -c "^ok " /tmp/.all || true)
    wrong=$(grep -c "^not ok " /tmp/.all || true)
    skipped=$(grep -c "^skip " /tmp/.all || true)
    echo "$programs programs: $passed passed, $wrong failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$wrong" -eq 0 ]
' run "$out" "$@"
