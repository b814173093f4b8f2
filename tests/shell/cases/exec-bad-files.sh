# Files that cannot be executed.
printf '\177ELF\2\1\1' >e; chmod +x e; ./e 2>/dev/null; echo $?; head -c 100 /bin/busybox >t; chmod +x t; ./t 2>/dev/null; echo $?; mkdir d; ./d 2>/dev/null; echo $?; echo x >p; ./p 2>/dev/null; echo $?
: >empty; chmod +x empty; ./empty; echo $?; cp /bin/busybox b; ./b echo works; chmod -x b; ./b echo no 2>/dev/null; echo $?; ln -s /bin/busybox echo; ./echo by name; dd if=/bin/busybox of=half bs=1024 count=500 2>/dev/null; chmod +x half; ./half true 2>/dev/null; echo $(($? != 0))
