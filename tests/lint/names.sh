#!/bin/sh
# Code outside axes.def asks for a mesh axis by a property, never by its name. Code outside planner/ir
# and the kernels asks for an index by its role, never by its letter or by the number of a dimension.
# It compares no op of ops.def by its name: it asks for a flag of the row or for its meaning.
# Programs are made of primitives, and these may be named: collectives, reshapes, ops on the state,
# casts, fills and pass. The import of traces (cli/import) may name any op, because a trace has names
# only. Tests may name all.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
primitives=$(sed -nE 's/^(RESHAPE|COMM)\( *([a-z0-9_]+).*/\2/p; s/^COMPUTE\( *([a-z0-9_]+).*OP_STATE.*/\1/p' \
    planner/ir/op/ops.def 2>/dev/null)
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | grep -vE '^(tests/|store/|planner/ir/layout/axes\.)' |
    while read -r file; do
        sed -E 's,/\*.*\*/,,; s,//.*,,' "$file" | awk -v file="$file" -v primitives="$primitives" '
        function bad(text) { print file ":" FNR ": " text }
        BEGIN {
            n = split(primitives " none pass cast fill", names, /[ \n]+/)
            for (i = 1; i <= n; i++) may["OP_" names[i]] = 1
        }
        { gsub(/AXIS_##[a-z]*/, "") }
        /(^|[^A-Za-z0-9_])AXIS_[a-z]/ { bad("names an axis") }
        /strcmp/ && /axis/ && /"[a-z_]+"/ { bad("compares the name of an axis") }
        file ~ /^(kernels|planner\/ir)\// { next }
        /(letter|split)[]A-Za-z0-9_[().>+-]* *[!=]?= *\047[A-Za-z]\047/ { bad("names the letter of an index") }
        /(size|start|valid|second)\[\047[A-Za-z]\047\]/ { bad("names the letter of an index") }
        file ~ /^(planner\/(passes|lower|verify|front)|sim|session)\// && /(->|\.)dim\[[1-9]\]/ {
            bad("names the number of a dimension")
        }
        file ~ /^cli\/import\// { next }
        /strcmp\(op_info\(/ && /"[a-z_0-9]+"/ { bad("compares the name of an op") }
        {
            rest = $0
            while (match(rest, /([!=]= *|case |op_info\()OP_[a-z][a-z0-9_]*/)) {
                op = substr(rest, RSTART, RLENGTH)
                sub(/.*OP_/, "OP_", op)
                rest = substr(rest, RSTART + RLENGTH)
                if (!(op in may)) bad("asks for " op " by its name")
            }
        }'
    done | { grep . && exit 1; exit 0; }
