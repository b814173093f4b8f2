# tar.
export TZ=UTC0; mkdir -p t/sub; echo one >t/1; echo two >t/sub/2; ln -s 1 t/link; ln t/1 t/hard; chmod 640 t/1; mkfifo t/p; touch -h -d '2003-03-03 03:03:03' t/1 t/sub/2 t/link t/p t/sub t
all="t/1 t/hard t/link t/p t/sub"; tar cf a.tar $all; tar tf a.tar | sort; mkdir x; tar xf a.tar -C x; find x | sort; cat x/t/sub/2; stat -c '%a %Y %F' x/t/1 x/t/p; readlink x/t/link; stat -c %h x/t/1
tar czf a.tgz $all; tar tzf a.tgz | wc -l; tar cf - $all | tar xf - -C x; echo $?; tar xOf a.tar t/1; tar tf /dev/null 2>/dev/null; echo garbage >g; tar xf g 2>/dev/null; echo $?; tar tvf a.tar t/1 | tr -s ' '
