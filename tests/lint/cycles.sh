#!/bin/sh
# cycles.sh OBJECT...: files whose objects need each other's symbols form a cycle: none of them can be
# read, tested or linked without the others. Prints each cycle that includes files of two folders, or
# more than 7 files of one folder. An object's name ends in DIR.dir/FOLDER/FILE.c.o, as CMake makes
# it.
most=7
[ $# -gt 0 ] || { echo "cycles: no objects" >&2; exit 2; }
nm -A "$@" | sed -nE 's|^.*\.dir/([^:]*)\.o:.* ([A-Za-z]) ([A-Za-z_0-9]+)$|\1 \2 \3|p' | awk -v most=$most '
    { if (!seen[$1]++) name[++n] = $1 }
    $2 ~ /[TDBRCV]/ { owner[$3] = $1 }
    $2 == "U" { wants[++n_wants] = $3; who[n_wants] = $1 }
    function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
    function reach(start, marks, n_stack, stack, at, i, next_file) {
        stack[n_stack = 1] = start
        while (n_stack > 0) {
            at = stack[n_stack--]
            for (i = 1; i <= n_next[at]; i++) {
                next_file = edge[at, i]
                if (!((start, next_file) in reached)) {
                    reached[start, next_file] = 1
                    stack[++n_stack] = next_file
                }
            }
        }
    }
    END {
        for (i = 1; i <= n_wants; i++) {
            from = who[i]; to = owner[wants[i]]
            if (to == "" || to == from || (from, to) in known) continue
            known[from, to] = 1
            edge[from, ++n_next[from]] = to
        }
        for (i = 1; i <= n; i++) reach(name[i])
        for (i = 1; i <= n; i++) {
            if (told[name[i]]) continue
            text = name[i]; size = 1; over = 0
            for (k = i + 1; k <= n; k++)
                if ((name[i], name[k]) in reached && (name[k], name[i]) in reached) {
                    told[name[k]] = 1; size++
                    text = text " " name[k]
                    if (folder(name[k]) != folder(name[i])) over = 1
                }
            if (over) { print "a knot over folders: " text; bad = 1 }
            else if (size > most) { print "a knot of " size " files (limit " most "): " text; bad = 1 }
        }
        exit bad
    }'
