#!/bin/sh
# Finds calls that may write beyond a buffer, hide state or start a shell. Also finds notes of unfinished work.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
calls='strcpy|strcat|sprintf|vsprintf|gets|strtok|system|popen|alloca|rand|srand|atoi|atol|atof'
{
    sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | while read -r file; do
        awk -f "$lint/strip.awk" "$file" |
            grep -nE "(^|[^A-Za-z0-9_.>])($calls)[ ]*\(" | sed "s,^,$file:,"
    done
    sh "$lint/files.sh" '*.c' '*.h' '*.def' '*.cu' '*.cuh' '*.lua' '*.sh' '*.cmake' '*.md' '*.txt' |
        grep -v '^tests/lint/' |
        xargs -r grep -nHE '(^|[^A-Za-z0-9_])(TODO|FIXME|HACK|NDEBUG)([^A-Za-z0-9_]|$)'
} | { grep . && exit 1; exit 0; }
