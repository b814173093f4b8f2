#!/bin/sh
# Builds libferry and its tests: OUTDIR/musl/library and example (static), OUTDIR/glibc/library and
# example (dynamic), and OUTDIR/double/library, whose kernel is the test double.
# usage: tests/library/build.sh OUTDIR
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
user=$here/../../user/c
mkdir -p "$1/musl" "$1/glibc" "$1/double"
out=$(cd "$1" && pwd)
for tool in gcc musl-gcc make; do
    command -v "$tool" >/dev/null && continue
    echo "$0: needs gcc, musl-gcc and make (Debian packages gcc, libc6-dev, musl-tools, make)" >&2
    exit 69
done

make -s -C "$user" CC=gcc BUILD="$out/glibc/lib" all
make -s -C "$user" CC=musl-gcc BUILD="$out/musl/lib" all
warnings="-std=gnu11 -O2 -pthread -Wall -Wextra -Werror -Wno-nonnull -Wno-stringop-overflow"

# build COMPILER PROGRAM SOURCE OPTION...: unless the program is newer than everything it is made of.
build() {
    compiler=$1 program=$2 source=$3
    shift 3
    if [ -x "$program" ] && [ -z "$(find "$here" "$user" "$here/../syscall/harness.h" -name '*.[ch]' -newer "$program")" ]; then
        return
    fi
    # The warnings are several words.
    # shellcheck disable=SC2086
    "$compiler" $warnings -I"$user" -o "$program" "$source" "$@"
}

# The example is the one of the page for users.
example=$out/example.c
sed -n '/^```c$/,/^```$/p' "$here/../../docs/posting.md" | sed '/^```/d' >"$example.new"
cmp -s "$example.new" "$example" || mv "$example.new" "$example"
rm -f "$example.new"
for source in "$here/library.c" "$example"; do
    name=$(basename "$source" .c)
    build musl-gcc "$out/musl/$name" "$source" -static "$out/musl/lib/libferry.a"
    build gcc "$out/glibc/$name" "$source" -L"$out/glibc/lib" -lferry -Wl,-rpath,"$out/glibc/lib"
done
# shellcheck disable=SC2086
build gcc "$out/double/library" "$here/library.c" -DFERRY_TEST_KERNEL "$user/src/ferry.c" "$here/double.c"
