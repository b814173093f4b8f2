# What a user who is not root may do.
chmod 755 . ; echo secret >s; chmod 600 s; echo open >o; chmod 644 o; mkdir closed; echo x >closed/f; chmod 700 closed; mkdir w; chmod 777 w
cat >try <<'END'
id -u; id -g
cat s 2>&1; cat o; cat closed/f 2>&1; ls closed 2>&1; echo a >w/mine; stat -c %u w/mine; (echo b >>o) 2>/dev/null; echo $?
rm s 2>&1 </dev/null; chmod 777 o 2>&1; kill -0 1 2>/dev/null; echo $?; chown 0 w/mine 2>&1; mount -t tmpfs x w 2>/dev/null; echo $(($? != 0))
END
chmod 644 try
start-stop-daemon -S -c 1000 -n no-such-name -a /bin/sh -- "$PWD/try" 2>&1
cat o
