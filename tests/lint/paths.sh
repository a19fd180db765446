#!/bin/sh
# Finds paths of one person's machine in the tree, and files in the tree's root that a test has left
# there.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*' | grep -vE '/|^\.|^(CMake(Lists\.txt|Presets\.json)|LICENSE|Makefile|README\.md)$' |
    sed 's/$/: a test left it here/' | { grep . && exit 1; exit 0; } || exit 1
sh "$lint/files.sh" '*' | grep -v '^tests/lint/' |
    xargs -r grep -nHIE '(^|[^]A-Za-z0-9_.})~*-])/(work|root|home|Users|mnt)/' |
    { grep . && exit 1; exit 0; }
