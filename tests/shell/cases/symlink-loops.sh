# Loops and chains of symbolic links.
ln -s b a; ln -s a b; cat a 2>&1; echo $?; ln -s self/x self; ls self/ 2>&1; echo $?
echo end >l0; i=1; while [ $i -le 42 ]; do ln -s l$((i - 1)) l$i; i=$((i + 1)); done
cat l40; cat l41 2>&1; readlink a; [ -e a ]; echo $?; [ -L a ]; echo $?; rm a b; ls | wc -l
find . -type l | wc -l; find -L . -maxdepth 1 -name l40 2>/dev/null
