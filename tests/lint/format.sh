#!/bin/sh
# Every C file is as clang-format writes it (`make format`).
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
sh "$lint/files.sh" '*.c' '*.h' '*.cu' '*.cuh' | xargs -r clang-format --dry-run -Werror
