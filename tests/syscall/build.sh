#!/bin/sh
# Builds the system-call tests: OUTDIR/musl/NAME and OUTDIR/glibc/NAME, static, only what changed.
# usage: tests/syscall/build.sh OUTDIR
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/musl" "$1/glibc"
out=$(cd "$1" && pwd)

# One object of work: compile a source with one C library, unless the program is newer.
if ! command -v musl-gcc >/dev/null || ! command -v gcc >/dev/null; then
    echo "$0: needs gcc and musl-gcc (Debian packages gcc, libc6-dev, musl-tools)" >&2
    exit 69
fi
jobs=$(nproc 2>/dev/null || echo 1)
for source in "$here"/*.c "$here"/../stress/*.c "$here"/../fuzz/fuzz.c "$here"/../differential/differential.c; do
    [ -e "$source" ] || continue
    headers=$here/harness.h
    case $(basename "$source") in fuzz.c | differential.c) headers=$(dirname "$source") ;; esac
    name=$(basename "$source" .c)
    for library in musl glibc; do
        program=$out/$library/$name
        # Which C library makes garbage does not matter.
        case $library/$name in glibc/hostile | glibc/race | glibc/fuzz | glibc/differential) continue ;; esac
        if [ -x "$program" ] && [ -z "$(find "$source" "$headers" "$here"/*.h "$0" -newer "$program")" ]; then
            continue
        fi
        case $library in musl) compiler=musl-gcc ;; *) compiler=gcc ;; esac
        printf '%s\0%s\0%s\0' "$compiler" "$program" "$source"
    done
done | xargs -0 -r -n 3 -P "$jobs" sh -c '
    # No optimisation beyond -O1: the cases look at what the kernel does, not the compiler.
    if "$1" -D_GNU_SOURCE -std=gnu11 -O1 -s -static -pthread -fno-strict-aliasing \
        -Wall -Wextra -Werror -Wno-nonnull -Wno-clobbered -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds \
        -o "$2.new" "$3"; then mv "$2.new" "$2"; else rm -f "$2.new"; exit 1; fi' build
