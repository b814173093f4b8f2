# Hard and symbolic links.
echo data >f; ln f hard; ln -s f soft; ln -s none dangling; stat -c %h f
cat soft; readlink soft; readlink -f soft | sed 's|.*/||'; cat dangling 2>/dev/null; echo $?
ln f hard 2>/dev/null; echo $?; ln -sf other soft; readlink soft; ln -f hard soft; cat soft; stat -c %h f
rm f; cat hard; stat -c %h hard; mkdir d; ln d e 2>/dev/null; echo $?
ln -s d ds; touch ds/in; ls d; rm ds; ls d
