# Checksums of known data.
printf abc | md5sum; printf abc | sha1sum; printf abc | sha256sum; printf abc | sha512sum; printf abc | cksum 2>/dev/null; printf abc | sum 2>/dev/null
seq 1 100000 | sha256sum; md5sum </dev/null; echo x >f; sha256sum f >c; sha256sum -c c; echo y >f; sha256sum -c c 2>/dev/null; echo $?; printf abc | crc32 2>/dev/null; seq 1 1000 | base64 | md5sum; printf 'aGVsbG8=' | base64 -d; echo
