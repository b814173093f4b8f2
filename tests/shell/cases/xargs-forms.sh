# xargs.
seq 1 10 | xargs; seq 1 10 | xargs -n 3; printf 'a b\0c\0' | xargs -0 -n 1 echo; seq 1 3 | xargs -I @ echo '<@>'
seq 1 5 | xargs -n 1 sh -c 'exit 1' ; echo $?; echo | xargs echo empty; echo | xargs -r echo never; seq 1 20000 | xargs echo | wc -w
printf '%s\n' 'it'"'"'s' 2>/dev/null | tr -d "'" | xargs echo
