#!/bin/sh
# Finds tables in comments whose columns the formatter has joined. Such a row is not indented and
# has a gap of several spaces, or it has a closing brace without its opening one. Rows that are
# indented by three spaces stay as they are written. It also finds a slash that is left over at the
# end of a comment.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | xargs -r awk '
    FNR == 1 { inside = 0 }
    {
        if ($0 ~ /^[ \t]*\/\*/) inside = 1
        if (!inside) next
        if ($0 ~ / \/ \*\/$/) print FILENAME ":" FNR ": " $0
        text = $0
        sub(/\*\/.*/, "", text)
        if (text ~ /^[ \t]*\/?\*+ [A-Za-z].*[A-Za-z0-9_]  +[A-Za-z]/) print FILENAME ":" FNR ": " $0
        else if (text ~ /[A-Za-z0-9_)] +\} [A-Za-z]/ && text !~ /\{.*\}/) print FILENAME ":" FNR ": " $0
        if ($0 ~ /\*\//) inside = 0
    }' | { grep . && exit 1; exit 0; }
