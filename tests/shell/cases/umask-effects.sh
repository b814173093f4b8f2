# umask on files, directories, fifos.
for u in 000 022 077 027 777; do umask $u; : >f$u; mkdir d$u; mkfifo p$u; umask 022; stat -c '%a' f$u d$u p$u | tr '\n' ' '; echo $u; done
umask -S; umask u=rwx,g=,o=; umask
