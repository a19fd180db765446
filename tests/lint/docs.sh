#!/bin/sh
# README.md has at most 200 lines. In README.md and docs/: links between files and to headings resolve,
# a paragraph has at most six lines, and a line at most 110 columns outside tables and code.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
{
    [ ! -f README.md ] || awk 'END { if (NR > 200) print "README.md: " NR " lines (limit 200)" }' README.md
    sh "$lint/files.sh" '*.md' | grep -E '^(README.md|docs/)' | while read -r file; do
        LC_ALL=C.UTF-8 awk -v file="$file" '
        function ended() { n = 0 }
        /^```/ { code = !code; ended(); next }
        code { next }
        /^\|/ || /^<!--/ { ended(); next }
        length > 110 { print file ":" FNR ": " length " columns (limit 110)" }
        /^$/ || /^#/ { ended(); next }
        /^ *([-*]|[0-9]+\.) / { n = 0 }
        ++n == 7 { print file ":" FNR ": a paragraph of more than six lines" }' "$file"
        folder=$(dirname "$file")
        grep -no '](\([^)#]*\)[^)]*)' "$file" | sed 's/](\([^)#]*\).*/\1/' | while IFS=: read -r line link; do
            case $link in http* | '') continue ;; esac
            [ -e "$folder/$link" ] || echo "$file:$line: there is no $link"
        done
    done
    sh "$lint/files.sh" '*.md' | grep -E '^(README.md|docs/)' | xargs -r awk -f "$lint/anchors.awk"
} | { grep . && exit 1; exit 0; }
