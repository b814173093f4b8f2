# Thousands of files in a directory.
i=0; while [ $i -lt 3000 ]; do : >file$i; i=$((i + 1)); done
ls | wc -l; ls | sort | md5sum; find . -name 'file*9' | wc -l; rm file1*; ls | wc -l; find . -type f -exec rm {} +; ls | wc -l
mkdir many; cd many; seq 1 2000 | xargs touch; ls -a | wc -l; seq 1 2000 | xargs mkdir -p 2>/dev/null; echo $?; cd ..; rm -r many; ls -A | wc -l
