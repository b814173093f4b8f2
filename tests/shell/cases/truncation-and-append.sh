# Truncation under an open appender and a plain writer.
exec 3>>log; echo 1 >&3; : >log; echo 2 >&3; cat log; exec 3>&-; exec 4>w; echo long line >&4; : >w; echo x >&4; exec 4>&-; od -c w; echo abc >t; dd if=/dev/null of=t bs=1 seek=1 2>/dev/null; od -c t; truncate -s 0 t; wc -c <t; cat t t >u; echo a >v; cat v v v >>v2; cat v2
