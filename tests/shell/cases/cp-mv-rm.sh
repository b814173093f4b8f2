# Copying, moving and removing trees.
mkdir -p a/b/c; echo 1 >a/1; echo 2 >a/b/2; ln -s ../1 a/b/link; chmod 750 a/b; chmod 600 a/1
cp -a a z; find z | sort; cat z/b/2; readlink z/b/link; stat -c '%a %n' z/b z/1
cp -r a/b plain; ls plain; cp a/1 a/b/2 plain/c; ls plain/c
cp none x 2>/dev/null; echo $?; cp a x 2>/dev/null; echo $?
mv a/1 moved; cat moved; mv a/b newname; ls newname; mv moved newname; ls newname; mv none x 2>/dev/null; echo $?
echo over >o1; echo written >o2; mv o1 o2; cat o2; ls o1 2>/dev/null; echo $?
rm moved 2>/dev/null; echo $?; rm -f none; echo $?; rm a 2>/dev/null; echo $?; rm -r a z plain newname; ls
