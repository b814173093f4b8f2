# exec: replacing the shell, redirecting it, failing.
sh -c 'exec echo replaced; echo no'; sh -c 'exec nosuch; echo no' 2>/dev/null; echo $?; sh -c 'exec >out; echo to file'; cat out; sh -c 'echo $$ >p1; exec sh -c "echo \$\$ >p2"'; cmp p1 p2 && echo same pid
sh -c 'exec 2>/dev/null; ls none; echo $?'; cat >s <<'END'
#!/bin/sh
echo "script $0 $1 $#"
exit 6
END
chmod +x s; ./s a b; echo $?; printf '#!/bin/echo -n x\n' >e; chmod +x e; ./e y; echo; printf '#!/bin/nosuch\n' >m; chmod +x m; ./m 2>/dev/null; echo $?; printf 'echo plain $1\n' >n; chmod +x n; ./n arg
