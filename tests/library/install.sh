#!/bin/sh
# Installs libferry below OUTDIR and checks what is there: every function has its page, and the
# library can be used from there alone, from C and from C++, static and shared.
# usage: tests/library/install.sh OUTDIR EXAMPLE.c
set -eu
[ $# -eq 2 ] || { echo "usage: $0 OUTDIR EXAMPLE.c" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
example=$2
make -s -C "$here/../../user/c" BUILD="$out/build" DESTDIR="$out/root" PREFIX=/usr install
usr=$out/root/usr
failed=0
for name in $(sed -n 's/^[a-z].*[ *]\(ferry_[a-z_]*[a-z]\)(.*/\1/p; s/^#define \(ferry_[a-z_]*\)(.*/\1/p' "$usr/include/ferry.h"); do
    [ -f "$usr/share/man/man3/$name.3" ] || { echo "not ok page_of_$name: there is none"; failed=1; }
done
if command -v man >/dev/null && command -v groff >/dev/null; then
    for page in "$usr"/share/man/man*/*; do
        said=$(cd "$usr/share/man" && man --warnings -l "$page" 2>&1 >/dev/null)
        [ -z "$said" ] || { echo "not ok page $page: $said"; failed=1; }
    done
fi
flags="-I$usr/include -L$usr/lib"
# The flags are several words.
# shellcheck disable=SC2086
gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$out/shared" "$example" $flags -lferry -Wl,-rpath,"$usr/lib"
# shellcheck disable=SC2086
gcc -O0 -o "$out/static" "$example" $flags -static -lferry
"$out/shared" >/dev/null && "$out/static" >/dev/null
printf '#include <ferry.h>\n#include <memsc.h>\nint main() { return ferry_call(SYS_getpid) <= 0 || memsc_retval(memsc_add(SYS_getpid)) <= 0; }\n' >"$out/plus.cc"
# shellcheck disable=SC2086
if command -v g++ >/dev/null; then
    g++ -Wall -Wextra -Wpedantic -Werror -o "$out/plus" "$out/plus.cc" $flags -lferry -Wl,-rpath,"$usr/lib"
    "$out/plus"
fi
[ "$failed" -eq 0 ] && echo "ok installed_as_described"
