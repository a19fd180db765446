#!/bin/sh
# Prints the project's files that match the given patterns: the files that git knows or would add. Without
# git, prints all matching files outside build/.
if git -c safe.directory='*' rev-parse --is-inside-work-tree >/dev/null 2>&1 && [ -e .git ]; then
    git -c safe.directory='*' ls-files --cached --others --exclude-standard -- "$@"
else
    for pattern in "$@"; do
        find . -path ./build -prune -o -name "$pattern" -type f -print | sed 's,^\./,,'
    done
fi | LC_ALL=C sort -u | while read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
done
