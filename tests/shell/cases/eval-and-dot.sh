# eval, ., shift, getopts, alias, local options.
eval 'a=1; echo $a'; n=name; eval "$n=value"; echo $name; echo 'echo sourced $1; b=2' >lib; . ./lib arg; echo $b; (. ./none) 2>/dev/null || echo $?; set -- -a -b val rest; while getopts ab: o; do echo "$o ${OPTARG-}"; done; shift $((OPTIND - 1)); echo $1; getopts x o -x; eval "echo \$(($(echo 1 + 1)))"; sh -c '. ./lib' 
alias ll='echo alias'; eval 'll x'; unalias ll; eval 'll x' 2>/dev/null; echo $?
