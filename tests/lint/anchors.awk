# Reads Markdown files. Prints each link whose anchor, the part behind "#", matches no heading of its page.

# Returns the anchor that a reader such as GitHub's makes of a heading.
function anchor(heading) {
    while (match(heading, /\]\([^)]*\)/))
        heading = substr(heading, 1, RSTART - 1) substr(heading, RSTART + RLENGTH)
    heading = tolower(heading)
    gsub(/[^a-z0-9_ -]/, "", heading)
    gsub(/ /, "-", heading)
    return heading
}

# Returns the path of a page, from the page `from` that names it as `path`. "": the same page.
function resolved(from, path,    folder) {
    if (path == "") return from
    folder = from
    if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    while (sub(/^\.\.\//, "", path))
        if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
    return folder == "." ? path : folder "/" path
}

FNR == 1 { code = 0 }
/^```/ { code = !code }
code { next }
/^#+ / {
    heading = $0
    sub(/^#+ +/, "", heading)
    name = FILENAME "#" anchor(heading)
    if (name in known) name = name "-" ++repeats[name]
    known[name] = 1
}
{
    line = $0
    while (match(line, /\]\([^)#]*#[^)]*\)/)) {
        link = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
        if (link ~ /^http/) continue
        at = index(link, "#")
        n++
        wanted[n] = resolved(FILENAME, substr(link, 1, at - 1)) substr(link, at)
        said[n] = FILENAME ":" FNR ": no heading for " link
    }
}
END { for (i = 1; i <= n; i++) if (!(wanted[i] in known)) print said[i] }
