# Quotes, escapes, command substitution inside quotes, empty words.
echo 'single $x `y`' "double \$x \"q\"" back\\slash a"b"'c'd
set -- '' "" a ''; echo $#
x='a  b'; echo $x; echo "$x"; echo "$(echo "in $(echo "deep  er") out")"
printf '%s|' $(printf 'a\n\nb\n\n'); echo
echo "`echo \`echo nested\``"
