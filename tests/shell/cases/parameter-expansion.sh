# Parameter expansion in all forms that ash knows.
v=/usr/local/lib/name.tar.gz; unset u; e=
echo "${v#*/}" "${v##*/}" "${v%.*}" "${v%%.*}" "${#v}"
echo "${u-unset}" "${u:-unset}" "${e-empty}" "${e:-empty}" "${u+set}" "${v+set}" "${e:+set}."
echo "${u=assigned}" "$u"
echo "${v:5:5}" "${v/local/LOCAL}" "${v//a/A}"
(unset w; : "${w?is missing}") 2>/dev/null; echo $?
set -- a 'b c' d; echo $# "$*" "$@"; IFS=-; echo "$*"; shift 2; echo $1 $#
