# Shell arithmetic: precedence, bases, shifts, assignment, division by zero.
echo $((1 + 2 * 3)) $(( (1 + 2) * 3 )) $((7 / 2)) $((-7 / 2)) $((-7 % 3)) $((2 ** 10))
echo $((0x1f)) $((017)) $((1 << 20)) $((-1 >> 1)) $((5 & 3 | 8 ^ 1)) $((!0)) $((~5))
x=5; echo $((x++ + ++x)) $x $((x += 10)) $((x > 3 ? 100 : 200))
echo $((9223372036854775807)) $((9223372036854775807 + 1))
(echo $((1 / 0))) 2>/dev/null; echo status $?
