#!/bin/sh
# One name, one meaning: no type name of product code stands for more than one type. Types that only
# one file uses count, too, because they also confuse a reader. Tests may use short names again.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | grep -v '^tests/' | while read -r file; do
    sed -E 's,/\*.*\*/,,; s,//.*,,' "$file" | sed -nE '
        s/^\} ([A-Z][A-Za-z0-9]*);.*/\1/p
        s/^typedef (struct|enum|union) [A-Z][A-Za-z0-9]* \{.*\} ([A-Z][A-Za-z0-9]*);.*/\2/p
        s/^typedef LIST\(.*\) ([A-Z][A-Za-z0-9]*);.*/\1/p
        s/^typedef (struct|enum|union) ([A-Z][A-Za-z0-9]*) [A-Z][A-Za-z0-9]*;.*/\2/p' | sort -u |
        sed "s,\$, $file,"
done | sort -u | awk '
    $1 == name { print $2 ": " name " is another type in " file; next }
    { name = $1; file = $2 }' | { grep . && exit 1; exit 0; }
