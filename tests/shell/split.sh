#!/bin/sh
# Splits what run-all.sh printed (standard input) into OUTDIR/NAME.out, the last line `exit N`.
# usage: split.sh OUTDIR
set -eu
mkdir -p "$1"
awk -v out="$1" '
    { sub(/\r$/, "") }
    /^=== begin / && file == "" { file = out "/" $3 ".out"; name = $3; printf "" >file; next }
    /^=== end / && $3 == name { close(file); file = ""; name = ""; next }
    file != "" { print >file }
'
