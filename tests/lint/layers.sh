#!/bin/sh
# A file includes only its own layer and earlier ones, by names from the root. sim and exec do not use each
# other. Only one layer uses each foreign library. Only the top layer ends the process.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.def' '*.cu' '*.cuh' | while read -r file; do
    awk -f "$lint/strip.awk" "$file" | awk -v file="$file" '
    # The order of dependency: a file may include its own layer and those before it.
    function layer(path) {
        if (path ~ /^planner\/base\//) return 1
        if (path ~ /^planner\/ir\//) return 2
        if (path ~ /^planner\/verify\//) return 3
        if (path ~ /^kernels\//) return 4
        if (path ~ /^planner\/front\//) return 5
        if (path ~ /^planner\/passes\//) return 6
        if (path ~ /^planner\/lower\//) return 7
        if (path ~ /^store\//) return 8
        if (path ~ /^sim\//) return 9
        if (path ~ /^exec\//) return 10
        if (path ~ /^session\//) return 11
        if (path ~ /^include\//) return 12
        if (path ~ /^cli\//) return 13
        if (path ~ /^tests\//) return 14
        return 0
    }
    function bad(text) { print file ":" FNR ": " text }
    function only(header, folder) {
        if (index($0, "<" header ">") && file !~ folder) bad("<" header "> belongs to " folder)
    }
    BEGIN {
        own = layer(file)
        if (own == 0) print file ": is in no layer"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, part, "\"")
        other = layer(part[2])
        if (other == 0) bad("\"" part[2] "\" is not a name from the root")
        else if (other > own) bad("\"" part[2] "\" is of a later layer")
        else if (own == 10 && other == 9) bad("exec does not know " part[2])
    }
    /^[ \t]*#[ \t]*include[ \t]*</ {
        only("lua.h", "^(planner/front|tests/docs|tests/unit/front)/")
        only("lauxlib.h", "^(planner/front|tests/docs|tests/unit/front)/")
        only("lualib.h", "^(planner/front|tests/docs)/")
        only("sqlite3.h", "^(store/db|tests/damaged/)")
        only("mpi.h", "^exec/mpi/")
        only("nccl.h", "^(exec|tests)/cuda/")
        only("cblas.h", "^kernels/")
        if ($0 ~ /<(cuda|cublas)[A-Za-z_]*\.h>/ && file !~ /^((exec|kernels|tests)\/cuda|tests\/gpu)\//)
            bad("CUDA belongs to exec/cuda and kernels/cuda")
    }
    own != 14 && /(^|[^A-Za-z0-9_.>])(exit|quick_exit)[ \t]*\(/ {
        if (file !~ /^cli\// && file !~ /^exec\/[a-z_\/]*launch[a-z_]*\.c$/)
            bad("only cli and the launch code of exec end the process")
    }
    own != 14 && /(^|[^A-Za-z0-9_.>])_exit[ \t]*\(/ {
        if (file !~ /^(cli|exec|planner\/front)\//) bad("_exit is for forked children")
    }'
done | { grep . && exit 1; exit 0; }
