# Bytes beyond ASCII in names and data.
printf 'gr\303\274n\n' >'na\303\257ve'; ls | od -c | head -n 3; touch "$(printf 'n\303\244me')"; for f in *; do printf '%s' "$f" | wc -c; done; cat n*ve | od -An -tx1; printf '\200\377\0\1' | od -An -tx1; printf '\377' >"$(printf 'bad\377')"; ls | wc -l; touch "$(printf 'new\nline')"; find . -name '*line' | wc -l
