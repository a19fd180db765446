#!/bin/sh
# check.sh BUILD: what needs a GPU, on one GPU, in less than 8 minutes: a line a check, and
# BUILD/gpu-check.json. Exit code 0: all passed; 1: one did not; 6: there is no GPU here.
build=$(realpath "${1:?the build folder}") || exit 2
source=$(realpath "$(dirname "$0")/../..")
tandem=$build/tandem
tiny=$source/scripts/plans/tiny_text.lua
json=$build/gpu-check.json
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0 rows='' total=$(date +%s)

refuse() {
    echo "gpu-check: not run: $1" >&2
    printf '{ "schema": "tandem.gpu-check/1", "run": false, "why": "%s" }\n' "$1" >"$json"
    exit 6
}

[ -f "$build/tandem_cuda.so" ] ||
    refuse "$build has no tandem_cuda.so: build where nvcc, cuBLAS and NCCL are installed"
"$tandem" doctor >doctor.txt 2>&1
grep -qE '^ok +gpu [0-9]' doctor.txt ||
    refuse "$(sed -nE 's/^(missing|note) +(gpu|driver|cuda) +//p' doctor.txt | tail -1)"
grep -E ' (gpu [0-9]+|driver|nccl|cuda) ' doctor.txt

# check NAME COMMAND...: its output is shown when it fails.
check() {
    name=$1
    shift
    start=$(date +%s)
    if "$@" >out.txt 2>&1; then verdict=passed; else verdict=FAILED failures=$((failures + 1)); fi
    seconds=$(($(date +%s) - start))
    printf '%-7s %4d s  %s\n' "$verdict" "$seconds" "$name"
    if [ "$verdict" = FAILED ]; then tail -15 out.txt | sed 's/^/    /'; fi
    rows="$rows${rows:+,}
    { \"name\": \"$name\", \"verdict\": \"$verdict\", \"seconds\": $seconds }"
}

# loss NAME ARGUMENT...: trains the tiny plan and keeps the loss of the last steps in NAME.
loss() {
    to=$1
    shift
    "$tandem" run "$tiny" --steps 12 --json --quiet "$@" >"$to.json" || return 1
    sed -nE 's/.*"last_loss": ([-0-9.e+]+).*/\1/p' "$to.json" >"$to"
    [ -s "$to" ]
}

near() { # A B: within 1e-3 of each other
    awk -v a="$(cat "$1")" -v b="$(cat "$2")" 'BEGIN { d = a > b ? a - b : b - a; print a, b
        exit !(d <= 1e-3 * b) }'
}

one='--set mesh.dp_shard=1 --set mesh.tp=1'
# shellcheck disable=SC2086
same_with_and_without_graphs() {
    for how in none whole cut; do loss "$how" --backend cuda --graph $how $one || return 1; done
    cmp none whole && cmp none cut && loss again --backend cuda --graph none $one && cmp none again
}
# shellcheck disable=SC2086
one_rank_as_on_the_cpu() {
    loss gpu --backend cuda $one && loss cpu --backend loopback $one && near gpu cpu
}
ranks_that_share_the_gpu() { # by what they communicate
    loss "$1" --backend cuda --share-device --timeout 120 --via "$1" &&
        loss four --backend loopback && near "$1" four
}
sanitized() {
    tool=$1
    compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all \
        "$tandem" run "$tiny" --backend cuda --graph none --steps 2 $one
}

for program in "$build"/tests/gpu_test_*; do
    if [ -x "$program" ]; then check "$(basename "$program" | sed 's/^gpu_test_//')" "$program"; fi
done
check 'graphs or none: the same bits, twice' same_with_and_without_graphs
check 'one rank: the loss of the CPU' one_rank_as_on_the_cpu
if command -v mpirun.openmpi >/dev/null || command -v mpirun.mpich >/dev/null; then
    check 'four ranks on one GPU, through the host' ranks_that_share_the_gpu host
    check 'four ranks on one GPU (NCCL by different host ids)' ranks_that_share_the_gpu nccl
fi
if command -v compute-sanitizer >/dev/null; then
    check 'compute-sanitizer memcheck' sanitized memcheck
    check 'compute-sanitizer racecheck' sanitized racecheck
fi
total=$(($(date +%s) - total))
printf '{ "schema": "tandem.gpu-check/1", "run": true, "failures": %d, "seconds": %d, "checks": [%s\n] }\n' \
    "$failures" "$total" "$rows" >"$json"
echo "gpu-check: $failures failed, $total s, $json"
[ "$failures" -eq 0 ]
