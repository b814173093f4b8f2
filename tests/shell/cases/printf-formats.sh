# printf.
printf '%d %5d|%-5d|%05d %x %X %o %c\n' 42 42 42 42 255 255 8 abc
printf '%s %10s|%-10s|%.2s\n' a b c defg
printf '%b\n' 'a\tb\\n\0101'; printf '%q\n' x 2>/dev/null; printf '%%\n'
printf '%s-%s\n' 1 2 3; printf 'no newline'; echo; printf '%e %.3f %g\n' 12345.678 3.14159 0.0001
printf '\x41\102\n'; printf '%d\n' 0x10 010 "'A"; printf '%d\n' abc 2>/dev/null; echo $?
