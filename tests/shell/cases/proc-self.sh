# /proc/self, what programs rely on.
readlink /proc/self | tr -d 0-9; readlink /proc/self/exe | sed 's|.*/||'; tr '\0' ' ' </proc/self/cmdline; echo; cat /proc/self/comm; grep -c '^' /proc/self/maps | awk '{ print ($1 > 3) }'; grep -E '^(Name|Uid|Gid|State|Threads):' /proc/self/status; ls /proc/self/fd | grep -c '^[0-3]$'
readlink /proc/self/cwd | sed 's|.*/||'; awk '{ print $2, $3, NF }' /proc/self/stat; grep -c stack /proc/self/maps; cat /proc/$$/comm; head -c 4 /proc/self/exe | od -c; exec 7</dev/null; readlink /proc/$$/fd/7; ls -l /proc/self/fd/0 | sed 's/.*-> //'
ls -d /proc/1 /proc/self /proc/mounts /proc/meminfo; ls /proc/999999 2>/dev/null; echo $?; echo x >/proc/version 2>/dev/null; echo $?
