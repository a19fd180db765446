#!/bin/sh
# Code outside axes.def asks for a mesh axis by a property, never by its name. Code outside planner/ir
# and the kernels asks for an index by its role, never by its letter. Tests may name both.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | grep -vE '^(tests/|store/|planner/ir/layout/axes\.)' |
    while read -r file; do
        sed -E 's,/\*.*\*/,,; s,//.*,,' "$file" | awk -v file="$file" '
        function bad(text) { print file ":" FNR ": " text }
        { gsub(/AXIS_##[a-z]*/, "") }
        /(^|[^A-Za-z0-9_])AXIS_[a-z]/ { bad("names an axis") }
        /strcmp/ && /axis/ && /"[a-z_]+"/ { bad("compares the name of an axis") }
        file ~ /^(kernels|planner\/ir)\// { next }
        /(letter|split)[]A-Za-z0-9_[().>+-]* *[!=]?= *\047[A-Za-z]\047/ { bad("names the letter of an index") }
        /(size|start|valid|second)\[\047[A-Za-z]\047\]/ { bad("names the letter of an index") }'
    done | { grep . && exit 1; exit 0; }
