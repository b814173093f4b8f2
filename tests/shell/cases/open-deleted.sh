# Files that are removed or replaced while open.
echo content >f; exec 3<f; rm f; cat <&3; exec 3<&-; exec 4>g; echo a >&4; mv g h; echo b >&4; exec 4>&-; cat h; mkdir d; cd d; rmdir ../d; pwd >/dev/null; touch x 2>/dev/null; echo $?; ls; cd ..; ls; echo 1 >i; tail -n 1 i; cp i j; echo 22222 >i; cat j; exec 5<>k; echo rw >&5; exec 5<&-; cat k; (exec 6<h; rm h; echo new >h; cat <&6 h)
