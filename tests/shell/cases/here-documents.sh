# Here-documents: expansion, quoting, tabs, several at once, large.
x=value
cat <<END
$x $((1+1)) $(echo sub) \$x
END
cat <<'END'
$x $((1+1)) \n
END
cat <<-END
	tab removed
	  spaces stay
	END
cat <<A; cat <<B
first
A
second
B
sed 's/^/> /' <<END | tail -n 1
$(seq 1 20000)
END
while read line; do echo "[$line]"; done <<END
one
  two  three
END
