# Prints C without comments, and with blanks instead of the contents of strings and characters. Lines keep
# their places, and #include lines their strings. Checks of calls and of includes read this output.
BEGIN { in_comment = 0 }
{
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include/) { print; next }
    out = ""
    n = length($0)
    quote = ""
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++; out = out " " }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (two == "/*") { in_comment = 1; i++ }
        else if (two == "//") break
        else {
            if (c == "\"" || c == "'") quote = c
            out = out c
        }
    }
    print out
}
