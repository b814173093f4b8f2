# ed, dc, bc, factor, cal.
printf 'a\none\ntwo\n.\n1s/one/ONE/\nw f\nq\n' | ed 2>/dev/null; cat f; echo '2 3 + p 4 * p' | dc; echo '2^64; 10/3; scale=3; 10/3' | bc; factor 97 360 1001; cal 2 2024; echo 'sqrt(2)' | bc -l 2>/dev/null | head -c 8; echo
