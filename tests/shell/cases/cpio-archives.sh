# cpio.
mkdir -p t/d; echo a >t/a; seq 1 1000 >t/d/b; ln -s a t/l; find t | sort | cpio -o -H newc 2>/dev/null >a.cpio; cpio -t <a.cpio 2>/dev/null | sort
mkdir x; cd x; cpio -id <../a.cpio 2>/dev/null; find . | sort; cmp t/d/b ../t/d/b; readlink t/l; cd ..; head -c 200 a.cpio >short; mkdir y; cd y; cpio -id <../short >/dev/null 2>&1; echo $(($? != 0))
