# A path of two hundred levels.
i=0; while [ $i -lt 200 ]; do mkdir dir; cd dir; i=$((i + 1)); done
pwd | tr -cd / | wc -c | awk '{ print ($1 > 200) }'; echo deep >file; cd ../../..; cat dir/dir/dir/file
while [ -d ../dir ] && [ $i -gt 3 ]; do cd ..; i=$((i - 1)); done; ls; find . -type f | wc -l; rm -r dir; ls
mkdir -p x/y/z/../w; find x | sort; rmdir -p x/y/w 2>/dev/null; echo $?; find x | sort
