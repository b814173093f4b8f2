# od, hexdump, xxd, strings.
printf 'ABC\n\001\377xyz' >b; od b; od -c b; od -An -tx1 b; od -An -tu2 b; od -j 2 -N 3 -c b; hexdump b; hexdump -C b; xxd b; xxd -p b; printf 'ab\0\0hello\0x' | strings; printf '4142' | xxd -r -p; echo
hexdump -e '2/1 "%02x " "\n"' b; dd if=/dev/zero bs=64 count=1 2>/dev/null | hexdump -C
