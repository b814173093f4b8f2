# find by name, type, size, permission, depth, with actions.
mkdir -p a/b/c d; echo 1 >a/x.txt; echo 22 >a/b/y.txt; : >a/b/c/empty; dd if=/dev/zero of=d/big bs=1024 count=20 2>/dev/null; ln -s x a/link; chmod 600 a/x.txt
find . | sort; find . -name '*.txt' | sort; find . -type d | sort; find . -type l; find . -size +10k; find . -empty | sort
find . -perm 600; find . -maxdepth 1 | sort; find . -mindepth 3 | sort; find a -path '*b*' -prune -o -print | sort
find . -name '*.txt' -exec cat {} \; | sort; find . -type f -print0 | xargs -0 ls | sort; find . -name c -exec sh -c 'echo "dir $0"' {} \;
find a -newer a/x.txt -name nothing; find . -name big -exec rm {} \;; ls d; find none 2>/dev/null; echo $?
