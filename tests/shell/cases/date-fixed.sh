# Date arithmetic on fixed input.
export TZ=UTC0
date -d @0 '+%Y-%m-%d %H:%M:%S'; date -d @1000000000 '+%a %b %e %T %Y %j %u'; date -u -d '2024-02-29 12:00:00' +%s
date -d '2000-01-01 00:00:00' '+%s %y %B'; date -R -d @86400; date -I -d @951782400
TZ=XYZ-3 date -d @0 '+%H %Z'; date -d nonsense 2>/dev/null; echo $?
