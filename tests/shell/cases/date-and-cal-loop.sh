# Loops over fixed dates; leap years.
export TZ=UTC0; for y in 1900 2000 2023 2024; do date -d "$y-03-01 00:00:00" +%j; done; d=951696000; i=0; while [ $i -lt 3 ]; do date -d @$((d + i * 86400)) +%F; i=$((i + 1)); done; date -d @2147483648 +%Y; date -d @-1 +%Y
