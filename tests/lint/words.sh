#!/bin/sh
# Contracts name their subject: in a header no sentence of a comment begins with "What" or "Whoever",
# or says "what ... of it".
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.h' | grep -v '^tests/' |
    xargs -r awk '
    # Returns the comments of a line without strings. A " . " marks the place where a comment begins.
    function comments(line,    out, at) {
        gsub(/"([^"\\]|\\.)*"/, "", line)
        out = ""
        while (line != "") {
            if (inside) {
                sub(/^[ \t]*\*+([ \t]|$)/, "", line)
                at = index(line, "*/")
                if (!at) return out " " line
                out = out " " substr(line, 1, at - 1)
                line = substr(line, at + 2)
                inside = 0
            } else {
                at = match(line, /\/\*|\/\//)
                if (!at) return out
                if (substr(line, at, 2) == "//") return out " . " substr(line, at + 2)
                inside = 1
                out = out " . "
                line = substr(line, at + 2)
            }
        }
        return out
    }
    FNR == 1 { inside = 0; before = "" }
    {
        text = comments($0)
        whole = before " " text
        if (whole ~ /[.:!?;] *([-]+ )?(What|Whoever) / || text ~ /[Ww]hat [^.;:,]* of it([^a-z]|$)/)
            print FILENAME ":" FNR ": name the subject:" text
        # The last two characters of a line show whether a sentence ends there.
        before = text ~ /[.:!?;-] *$/ ? "." : ""
        if (text == "") before = ""
    }' | { grep . && exit 1; exit 0; }
