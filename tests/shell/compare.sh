#!/bin/sh
# Compares two directories of split.sh: `ok NAME` or `not ok NAME` with the differences per script,
# then a summary. Exit status 0 iff all of EXPECTED are equal in ACTUAL.
# usage: compare.sh EXPECTED ACTUAL
set -eu
passed=0 failed=0
for expected in "$1"/*.out; do
    name=$(basename "$expected" .out)
    if [ ! -f "$2/$name.out" ]; then
        echo "not ok $name: no output"
        failed=$((failed + 1))
    elif cmp -s "$expected" "$2/$name.out"; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name: - expected, + got"
        diff -a -U 2 "$expected" "$2/$name.out" | sed -n '3,40s/^/#   /p' || true
        failed=$((failed + 1))
    fi
done
echo "shell: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
