#!/bin/sh
# A file has at most 500 lines (a test at most 700), a function at most 70, and a folder of code or
# scripts at most 25 files of its own. (In scripts/clusters each file is a name that plans write, so
# that folder may have more.)
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
{
    sh "$lint/files.sh" '*.c' '*.h' '*.def' '*.cu' '*.cuh' 'scripts/*' | awk '
        /^scripts\/clusters\// { next }
        sub(/\/[^\/]*$/, "") { if (++n[$0] == 26) print $0 ": more than 25 files in a folder" }'
    sh "$lint/files.sh" '*.c' '*.h' '*.def' '*.cu' '*.cuh' '*.lua' '*.sh' '*.awk' '*.cmake' |
        while read -r file; do
            awk -v file="$file" '
            BEGIN { limit = file ~ /^tests\// ? 700 : 500 }
            file ~ /\.(c|h|cu|cuh)$/ && /^\{/ { start = FNR }
            /^\}/ && start {
                if (FNR - start + 1 > 70)
                    print file ":" start ": a function of " FNR - start + 1 " lines (limit 70)"
                start = 0
            }
            END { if (NR > limit) print file ": " NR " lines (limit " limit ")" }' "$file"
        done
} | { grep . && exit 1; exit 0; }
