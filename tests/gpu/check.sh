#!/bin/sh
# check.sh BUILD: the checks that need a GPU, on one GPU: one line for each check, and
# BUILD/gpu-check.json. A check that cannot run here, or for which no time is left of 450 s, is
# skipped and counted separately. Lines that a passing program prints with "told: " appear below its
# line, and in the JSON. Exit code 0: some passed, none failed; 1: one failed, or nothing was
# checked; 6: there is no GPU here.
build=$(realpath "${1:?the build folder}") || exit 2
source=$(realpath "$(dirname "$0")/../..")
tandem=$build/tandem
tiny=$source/scripts/plans/tiny_text.lua
text=$source/docs/explanation/accuracy.md # to train on: every machine has it
json=$build/gpu-check.json
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failures=0 skipped=0 rows='' total=$(date +%s)
limit=450 most=120 # seconds for all checks; for one check
cannot=77          # exit code of a check that cannot run here; its last line says why

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

row() { # NAME VERDICT SECONDS [WHY [TOLD]]; TOLD: strings of JSON
    printf '%-7s %4d s  %s%s\n' "$2" "$3" "$1" "${4:+: $4}"
    rows="$rows${rows:+,}
    { \"name\": \"$1\", \"verdict\": \"$2\", \"seconds\": $3${4:+, \"why\": \"$4\"}${5:+, \"told\": [$5]} }"
}

skip() { # NAME WHY
    skipped=$((skipped + 1))
    row "$1" skipped 0 "$2"
}

# seconds that a command may take now
left() {
    spare=$((limit - ($(date +%s) - total)))
    if [ $spare -lt $most ]; then echo $spare; else echo $most; fi
}

# limited COMMAND...: ends it, with its children, when the check's time or all time is over.
limited() {
    if [ "$(left)" -lt 1 ]; then return 124; fi
    timeout -k 2 "$(left)" "$@"
}

# check NAME COMMAND...: shows its output if it fails.
check() {
    name=$1
    shift
    start=$(date +%s)
    if [ "$(left)" -lt 5 ]; then
        skip "$name" 'the time is up'
        return
    fi
    "$@" >out.txt 2>&1
    code=$? seconds=$(($(date +%s) - start))
    case $code in
    0)
        passed=$((passed + 1))
        row "$name" passed $seconds '' "$(sed -n 's/["\\]//g; s/^told: \(.*\)/"\1"/p' out.txt | paste -sd, -)"
        sed -n 's/^told: /    /p' out.txt
        ;;
    "$cannot") skip "$name" "$(tail -1 out.txt)" ;;
    124 | 137) failures=$((failures + 1)) && row "$name" FAILED $seconds 'not done in time' ;;
    *) failures=$((failures + 1)) && row "$name" FAILED $seconds "code $code" ;;
    esac
    if [ $code -ne 0 ] && [ $code -ne $cannot ]; then tail -15 out.txt | sed 's/^/    /'; fi
}

# loss NAME ARGUMENT...: trains the tiny plan and stores the loss of the last steps in NAME.
loss() {
    to=$1
    shift
    limited "$tandem" run "$tiny" --data "$text" --json --quiet "$@" >"$to.json" || return
    sed -nE 's/.*"last_loss": ([-0-9.e+]+).*/\1/p' "$to.json" >"$to"
    if grep -q '"plain_products": [1-9]' "$to.json"; then # cublasLt refused them
        grep -o 'the plain kernel computes this product: [^"]*' "$to.json"
        return 1
    fi
    [ -s "$to" ]
}

near() { # A B: within 1e-3 of each other
    awk -v a="$(cat "$1")" -v b="$(cat "$2")" 'BEGIN { d = a > b ? a - b : b - a; print a, b
        exit !(d <= 1e-3 * b) }'
}

one='--set mesh.dp_shard=1 --set mesh.tp=1 --steps 12'
# Each way to run a step must give the same loss, to the last digit, and the run must be repeatable.
# shellcheck disable=SC2086
same_with_and_without_graphs() {
    for how in none whole cut; do loss "$how" --backend cuda --graph $how $one || return; done
    cmp none whole && cmp none cut && loss again --backend cuda --graph none $one && cmp none again
}
# Ranks that share the GPU must give the same loss in every way, to the last digit, and the CPU's.
# CUDA does not promise that branches of a graph run at once. If they do not, a branch that waits
# for the host may never see what another branch waits for; with several axes that is no failure.
shared='--backend cuda --share-device --timeout 40 --steps 6'
# shellcheck disable=SC2086
ranks_that_share_the_gpu() { # VIA AXES ARGUMENT...
    via=$1 axes=$2
    shift 2
    loss none $shared --via "$via" --graph none "$@" && loss cpu --backend loopback --steps 6 "$@" &&
        near none cpu || return
    for how in cut whole; do
        if ! loss $how $shared --via "$via" --graph $how "$@" 2>error.txt; then
            cat error.txt
            if [ "$via $axes" != 'host several' ] || ! grep -q 'error\[timeout\]' error.txt; then return 1; fi
            echo "it ends without graphs; with --graph $how branches of a graph do not run at once"
            return $cannot
        fi
        cmp none $how || return
    done
}
# shellcheck disable=SC2086
one_rank_as_on_the_cpu() {
    loss gpu --backend cuda $one && loss cpu --backend loopback $one && near gpu cpu
}
sanitized() { # TOOL COMMAND...
    tool=$1
    shift
    TANDEM_FEW_CASES=1 limited compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all "$@"
}

for program in "$build"/tests/gpu_test_*; do
    if [ -x "$program" ]; then check "$(basename "$program" | sed 's/^gpu_test_//')" limited "$program"; fi
done
# shellcheck disable=SC2086
check 'graphs or none: the same bits, twice' same_with_and_without_graphs $one
check 'one rank: the loss of the CPU' one_rank_as_on_the_cpu
with_mpirun() { # NAME COMMAND...
    if command -v mpirun.openmpi >/dev/null || command -v mpirun.mpich >/dev/null; then
        check "$@"
    else
        skip "$1" 'there is no mpirun'
    fi
}
with_mpirun 'four ranks on one GPU (NCCL by different host ids), graphs or none' \
    ranks_that_share_the_gpu nccl several
with_mpirun 'two ranks on one GPU, through the host, graphs or none' \
    ranks_that_share_the_gpu host one --set mesh.tp=1
with_mpirun 'four ranks on one GPU, through the host, graphs or none' \
    ranks_that_share_the_gpu host several
# A whole plan, then programs with mma.sync and, on a Hopper, wgmma and TMA.
for tool in memcheck racecheck synccheck; do
    for what in plan gemm attention; do
        name="compute-sanitizer $tool, $what"
        program=$build/tests/gpu_test_$what
        if ! command -v compute-sanitizer >/dev/null; then
            skip "$name" 'there is no compute-sanitizer'
        elif [ $what = plan ]; then
            # shellcheck disable=SC2086
            check "$name" sanitized $tool \
                "$tandem" run "$tiny" --data "$text" --backend cuda --graph none --steps 2 $one
        elif [ -x "$program" ]; then
            check "$name" sanitized $tool "$program"
        else
            skip "$name" "there is no gpu_test_$what"
        fi
    done
done
total=$(($(date +%s) - total))
printf '{ "schema": "tandem.gpu-check/1", "run": true, "passed": %d, "failures": %d, "skipped": %d, "seconds": %d, "checks": [%s\n] }\n' \
    "$passed" "$failures" "$skipped" "$total" "$rows" >"$json"
echo "gpu-check: $passed passed, $failures failed, $skipped skipped, $total s, $json"
# If nothing was checked, nothing was shown to work.
[ "$failures" -eq 0 ] && [ "$passed" -gt 0 ]
