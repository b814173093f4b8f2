# IFS and fields.
s=' a  b	c
d '; for w in $s; do echo "[$w]"; done; IFS=:; p=':a::b:'; for w in $p; do echo "[$w]"; done; IFS=' :'; q='a : b:c'; for w in $q; do echo "[$w]"; done; IFS=; for w in $s; do echo one; done | wc -l; unset IFS; set -- $s; echo $#; set -- "$s"; echo $#; set -- "a b" c; for w; do echo "$w"; done; for w in $*; do echo "$w"; done
