#!/bin/sh
# Checks that every header compiles when it is included first.
lint=$(dirname "$(realpath "$0")")
cd "${1:-.}" || exit 1
flags="-std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -I."
flags="$flags $(pkg-config --cflags lua5.4 sqlite3 jansson cmocka 2>/dev/null)"
sh "$lint/files.sh" '*.h' | while read -r file; do
    case $file in
    exec/mpi/*) more=$(pkg-config --cflags ompi-c 2>/dev/null || pkg-config --cflags mpich) ;;
    exec/cuda/private.h | kernels/cuda/* | tests/cuda/double/*) continue ;;
    kernels/cpu/real*) continue ;; # bodies compiled once for each precision
    *) more='' ;;
    esac
    # A header may define unused functions; cmocka.h needs four headers before it.
    printf '#include "%s"\n' "$file" | ${CC:-cc} $flags $more -Wno-unused -x c -fsyntax-only - \
        >/dev/null 2>&1 || echo "$file does not compile by itself"
done | { grep . && exit 1; exit 0; }
