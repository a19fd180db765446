#!/bin/sh
# Fits the network model to the dev-cal rows of a table of published collectives.
# Arguments: the table (columns of measured_comm.csv), the build folder (default build/release), -v.
set -eu
table=$1
build=${2:-build/release}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries="-Wl,--start-group"
for layer in cli exec sim passes front kernels ir base; do
    libraries="$libraries $build/libtandem_$layer.a"
done
libraries="$libraries -Wl,--end-group $(pkg-config --libs lua5.4 sqlite3 zlib jansson) -lopenblas -lm -ldl -lpthread"
cd "$root"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -I. $(pkg-config --cflags jansson) \
    tests/bench/fit_comm.c -L/usr/lib/x86_64-linux-gnu/openblas-serial $libraries -o "$work/fit"
TANDEM_SCRIPTS=${TANDEM_SCRIPTS:-scripts} "$work/fit" "$table" ${3:-}
