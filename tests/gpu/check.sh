#!/bin/sh
# check.sh BUILD [OUT]: the checks that need a GPU, on one GPU: one line for each check, and
# gpu-check.json in OUT, which is BUILD unless it is named. Programs of one process run side by side.
# Ranks that share the GPU run alone. A check is skipped, and counted separately, if it cannot run
# here, or if the 450 s are used up. Lines that a passing program prints with "told: " appear below
# its line, and in the JSON. TANDEM_CHECK_LOGS names a folder for each check's output,
# TANDEM_CHECK_JOBS the number of checks side by side. Exit code 0: some passed, none failed; 1: one
# failed, or nothing was checked; 6: there is no GPU here.
# shellcheck disable=SC2317 # checks.sh calls the functions below by name

build=$(realpath "${1:?the build folder}") || exit 2
source=$(realpath "$(dirname "$0")/../..")
tandem=$build/tandem
tiny=$source/scripts/plans/tiny_text.lua
text=$source/docs/explanation/accuracy.md # the text to train on, which every machine has
json=${2:-$build}/gpu-check.json
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
limit=450 most=120 # seconds for all checks; for one check
jobs=${TANDEM_CHECK_JOBS:-$(nproc)} logs=${TANDEM_CHECK_LOGS:-$work/logs}
parts=8 # of the program that runs whole plans
# shellcheck source=SCRIPTDIR/checks.sh
. "$(dirname "$0")/checks.sh"
needs_gpu "$build" tandem.gpu-check/1 "$json"

loss() { # NAME ARGUMENT...
    to=$1
    shift
    trained "$to" "$tiny" --data "$text" --db "$PWD/check.db" "$@"
}

one='--set mesh.dp_shard=1 --set mesh.tp=1 --steps 12'
# Each way to run a step must give the same loss, to the last digit, and the run must be repeatable.
# shellcheck disable=SC2086
same_with_and_without_graphs() {
    for how in none whole cut; do loss "$how" --backend cuda --graph $how $one || return; done
    cmp none whole && cmp none cut && loss again --backend cuda --graph none $one && cmp none again
}
# Ranks that share the GPU must give the same loss, to the last digit, in every way to run a step. It must
# be close to the CPU's loss.
# CUDA does not promise that branches of a graph run at once. If they do not, a branch that waits
# for the host may never see what another branch waits for; with several axes that is not a failure.
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
part_of() { # PART PARTS PROGRAM
    TANDEM_PART=$1/$2 limited "$3"
}
sanitized() { # TOOL COMMAND...
    tool=$1
    shift
    TANDEM_FEW_CASES=1 limited compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all "$@"
}

plans=$build/tests/gpu_test_backend_plans
for program in "$build"/tests/gpu_test_*; do
    if [ -x "$program" ] && [ "$program" != "$plans" ]; then
        beside "$(basename "$program" | sed 's/^gpu_test_//')" limited "$program"
    fi
done
beside 'graphs or none: the same bits, twice' same_with_and_without_graphs
beside 'one rank: the loss of the CPU' one_rank_as_on_the_cpu
together
part=1
while [ -x "$plans" ] && [ $part -le $parts ]; do
    beside "backend_plans, part $part of $parts" part_of $part $parts "$plans"
    part=$((part + 1))
done
with_mpirun() { # NAME COMMAND...
    if command -v mpirun.openmpi >/dev/null || command -v mpirun.mpich >/dev/null; then
        alone "$@"
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
# Runs compute-sanitizer on a whole plan, then on programs with mma.sync and, on a Hopper, wgmma and TMA.
for tool in memcheck racecheck synccheck; do
    for what in plan gemm attention; do
        name="compute-sanitizer $tool, $what"
        program=$build/tests/gpu_test_$what
        if ! command -v compute-sanitizer >/dev/null; then
            skip "$name" 'there is no compute-sanitizer'
        elif [ $what = plan ]; then
            # shellcheck disable=SC2086
            beside "$name" sanitized $tool "$tandem" run "$tiny" --data "$text" --db plan.db \
                --backend cuda --graph none --steps 2 $one
        elif [ -x "$program" ]; then
            beside "$name" sanitized $tool "$program"
        else
            skip "$name" "there is no gpu_test_$what"
        fi
    done
done
printf 'gpu-check: ' >"$work/said"
finish tandem.gpu-check/1 "$json" >>"$work/said"
code=$?
cat "$work/said"
exit $code
