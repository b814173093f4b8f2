# chmod symbolic and octal, and what root and others may do.
touch f; for m in 644 755 000 7777 u+x go-r a=rw +x u=rwx,g=rx,o= ug+s o+t; do chmod $m f; stat -c "%a %A $m" f; done
mkdir -p d/e; touch d/e/g; chmod -R 700 d; find d -exec stat -c '%a %n' {} \; | sort
chmod 999 f 2>/dev/null; echo $?; chmod 644 none 2>/dev/null; echo $?
chown 12:34 f; stat -c '%u %g' f; chown :56 f; stat -c '%u %g' f; chgrp 78 f; stat -c '%u %g' f
