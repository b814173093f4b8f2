# ls on a fixed directory.
export TZ=UTC0
mkdir d; echo abc >d/b; : >d/a; ln -s a d/link; mkdir d/sub; chmod 640 d/b; chmod 1777 d/sub; mkfifo d/p; echo h >d/.hidden
touch -h -d '2005-05-05 05:05:05' d/a d/b d/link d/sub d/p d/.hidden
ls d; ls -a d; ls -A d; ls -1 d; ls -F d; ls -p d; ls -r d
ls -ln d/a d/b d/link d/p; ls -ld d/sub | cut -c1-10; ls -S d/b d/a; ls -R d; ls none 2>/dev/null; echo $?
