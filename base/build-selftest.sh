#!/bin/sh
# Builds base/examples/base-selftest.rs for bare metal and prints where it lies. $1 is the profile.
set -eu
cd "$(dirname "$0")/.."
profile=${1:-release}
RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc RUSTFLAGS="-Clinker=ld.lld -Clinker-flavor=ld.lld -Clink-arg=-Thal/src/x86_64/link.ld -Clink-arg=--no-dynamic-linker -Clink-arg=--eh-frame-hdr -Crelocation-model=static -Ccode-model=kernel -Cforce-frame-pointers=yes -Cpanic=unwind -Cforce-unwind-tables=yes" \
    /usr/bin/cargo build -p base --example base-selftest --target x86_64-unknown-none -Zbuild-std=core,alloc,compiler_builtins \
    -Zbuild-std-features=compiler-builtins-mem --target-dir target/kernel --profile "$profile"
echo "target/kernel/x86_64-unknown-none/$profile/examples/base-selftest"
