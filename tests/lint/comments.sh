#!/bin/sh
# Tables in comments whose columns the formatter has run together: a row that begins where sentences
# begin, with a gap of columns behind it; or a brace that closes what no line of it opened. Rows that
# are indented by three spaces stay as they are written.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | xargs -r awk '
    FNR == 1 { inside = 0 }
    {
        if ($0 ~ /^[ \t]*\/\*/) inside = 1
        if (!inside) next
        text = $0
        sub(/\*\/.*/, "", text)
        if (text ~ /^[ \t]*\/?\*+ [A-Za-z].*[A-Za-z0-9_]  +[A-Za-z]/) print FILENAME ":" FNR ": " $0
        else if (text ~ /[A-Za-z0-9_)] +\} [A-Za-z]/ && text !~ /\{.*\}/) print FILENAME ":" FNR ": " $0
        if ($0 ~ /\*\//) inside = 0
    }' | { grep . && exit 1; exit 0; }
