# case with patterns.
for w in apple banana cherry '' '*' 'a b' 7; do
    case $w in
        a*e) echo "$w: a..e" ;;
        b[a-c]n*|x) echo "$w: class" ;;
        '') echo empty ;;
        '*') echo star ;;
        [0-9]) echo digit ;;
        *' '*) echo blank ;;
        *) echo other ;;
    esac
done
