# Parallel appenders of one file lose nothing.
for w in a b c d; do (i=0; while [ $i -lt 200 ]; do echo $w >>log; i=$((i + 1)); done) & done; wait; sort log | uniq -c
for w in 1 2 3; do (mkdir lock$w 2>/dev/null; mkdir lock 2>/dev/null && echo won) & done; wait; ls -d lock*; for w in 1 2 3 4; do (seq 1 500 | while read n; do echo $w$n; done >part$w) & done; wait; cat part? | sort | md5sum
