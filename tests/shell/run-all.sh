#!/bin/busybox sh
# Runs the scripts of cases/ one after the other in this system, each in an empty directory as root
# with HOME=/ PATH=/bin, and prints for each of them
#     === begin NAME / its standard output / exit N / === end NAME
# so that one boot (or one chroot) runs them all; split.sh makes one file per script of it. What the
# scripts write to standard error goes to standard error. A script that takes longer than
# SHELL_DEADLINE seconds (default 60) is killed: exit 137.
# usage: run-all.sh [NAME...]       CASES=DIR says where the scripts are
cases=${CASES:-$(dirname "$0")/cases}
work=${SHELL_WORK:-/tmp/shell}
mkdir -p "$work" /etc
# The users that the scripts name, where the root file system does not know them.
grep -q '^root:' /etc/passwd 2>/dev/null || echo 'root:x:0:0:root:/:/bin/sh' >>/etc/passwd
grep -q ':1000:' /etc/passwd || echo 'user:x:1000:1000:user:/:/bin/sh' >>/etc/passwd
grep -q '^root:' /etc/group 2>/dev/null || echo 'root:x:0:' >>/etc/group
grep -q ':1000:' /etc/group || echo 'user:x:1000:' >>/etc/group
[ $# -gt 0 ] || set -- $(cd "$cases" && ls | sed -n 's/\.sh$//p')
for name; do
    mkdir -p "$work/$name" && cd "$work/$name" || exit 70
    echo "=== begin $name"
    timeout -s KILL "${SHELL_DEADLINE:-60}" env -i HOME=/ PATH=/bin \
        sh "$cases/$name.sh" </dev/null >"$work/$name.stdout"
    status=$?
    cat "$work/$name.stdout"
    # The status gets a line of its own even after output without a newline at its end.
    [ -z "$(tail -c 1 "$work/$name.stdout")" ] || echo
    echo "exit $status"
    echo "=== end $name"
    cd / && chmod -R u+rwx "$work/$name" && rm -rf "$work/$name" "$work/$name.stdout"
done
