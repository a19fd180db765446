#!/bin/sh
# check_fake.sh: runs check.sh on a made-up build: checks that pass, fail, hang or cannot run must
# be counted as such.
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/tests" "$work/tests/gpu" "$work/scripts/plans" "$work/bin" \
    "$work/docs/explanation" "$work/out" || exit 1
touch "$work/build/tandem_cuda.so" "$work/docs/explanation/accuracy.md"
# Shorter limits, and only the named tools: no mpirun, no compute-sanitizer.
sed 's/^limit=450 most=120/limit=900 most=8/' "$here/check.sh" >"$work/tests/gpu/check.sh"
cp "$here/checks.sh" "$work/tests/gpu/"
for tool in sh realpath dirname mktemp rm date grep sed tail basename timeout awk cmp cat sleep paste mkdir mkfifo \
    nproc tr cp; do
    ln -s "$(command -v $tool)" "$work/bin/$tool" || exit 1
done
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/build/$1"
    chmod +x "$work/build/$1"
}
# shellcheck disable=SC2016
# A run must name a text that is beside the sources.
program tandem 'case $1 in doctor) echo "ok gpu 0"; exit ;; esac
while [ $# -gt 1 ] && [ "$1" != --data ]; do shift; done
[ -f "$2" ] && case $(realpath "$2") in "'"$work"'"/*) echo "{ \"last_loss\": 2.5 }" ;; *) exit 4 ;; esac'
program tests/gpu_test_broken 'echo wrong; exit 3'
program tests/gpu_test_fine 'echo "told: all \"is\" well"; echo no more; exit 0'
program tests/gpu_test_hangs 'sleep 600'
said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" 2>&1)
code=$?
echo "$said"
wants() {
    if ! echo "$said" | grep -qE "$1"; then
        echo "not told: $1"
        exit 1
    fi
}
[ $code -eq 1 ] || exit 1
wants '^FAILED .* broken: code 3$'
wants '^passed .* fine$'
wants '^    all "is" well$'
grep -q '"name": "fine".*"told": \["all is well"\]' "$work/build/gpu-check.json" || exit 1
wants '^FAILED .* hangs: not done in time$'
wants '^passed .* one rank: the loss of the CPU$'
wants '^skipped .* through the host, graphs or none: there is no mpirun$'
wants '^skipped .* memcheck, plan: there is no compute-sanitizer$'
wants '^gpu-check: [0-9]+ passed, 2 failed, 12 skipped, '
[ "$(grep -c '"verdict": "skipped", "seconds": 0, "why": "there is no ' "$work/build/gpu-check.json")" -eq 12 ] || exit 1
grep -q '"failures": 2, "skipped": 12' "$work/build/gpu-check.json" || exit 1

# Possible faults of ranks on one GPU: graphs with other bits, losses that differ from the CPU's,
# and graphs through the host that never end, which with one axis is a failure.
rm "$work"/build/tests/*
ln -s "$work/bin/sh" "$work/bin/mpirun.openmpi"
ranks() { # result of the command if "$*" contains some of a run's arguments
    program tandem "case \"\$*\" in doctor) echo 'ok gpu 0' ;; $1 *) echo '{ \"last_loss\": 2.5 }' ;; esac"
    said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" 2>&1)
    echo "$said" | grep ' ranks on\|graphs'
}
nccl='^%s .* four ranks on one GPU .NCCL by different host ids., graphs or none'
two='^%s .* two ranks on one GPU, through the host, graphs or none'
four='^%s .* four ranks on one GPU, through the host, graphs or none'
is() { # shellcheck disable=SC2059
    wants "$(printf "$1" "$2")"
}
ranks ''
is "$nccl" passed && is "$two" passed && is "$four" passed
ranks "*nccl*whole*) echo '{ \"last_loss\": 2.500001 }' ;;"
is "$nccl" FAILED && is "$two" passed && is "$four" passed
ranks "*host*none*tp=1*) echo '{ \"last_loss\": 2.51 }' ;;"
is "$nccl" passed && is "$two" FAILED && is "$four" passed
ranks "*host*cut*) echo 'error[timeout]: step 0' >&2; exit 6 ;;"
is "$nccl" passed && is "$two" FAILED && is "$four" skipped
wants 'with --graph cut branches of a graph do not run at once$'
ranks "*nccl*cut*) echo 'error[timeout]: step 0' >&2; exit 6 ;;"
is "$nccl" FAILED && is "$two" passed && is "$four" passed
ranks "*nccl*whole*) echo '{ \"plain_products\": 3, \"last_loss\": 2.5 }' ;;"
is "$nccl" FAILED && is "$two" passed && is "$four" passed
ranks "*cuda*whole*dp_shard=1*) echo '{ \"last_loss\": 2.4 }' ;;"
wants '^FAILED .* graphs or none: the same bits, twice'
# A program that runs whole plans runs in parts.
# shellcheck disable=SC2016
program tests/gpu_test_backend_plans 'echo "told: part $TANDEM_PART"; [ $TANDEM_PART != 3/8 ]'
said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" "$work/out" 2>&1)
wants '^    part 1/8$'
wants '^FAILED .* backend_plans, part 3 of 8: code 1$'
grep -q '"name": "backend_plans, part 8 of 8", "verdict": "passed"' "$work/out/gpu-check.json" || exit 1
rm "$work/build/tests/gpu_test_backend_plans"
# Programs with names in gpu_ exist only in builds with CUDA; here there are three made-up ones.
program tests/gpu_test_broken 'exit 3'
program tests/gpu_test_fine 'exit 0'
program tests/gpu_test_hangs 'sleep 600'

# A check that ends because all time is used up counts as not run, not as failed.
sed 's/^limit=450 most=120/limit=9 most=100/' "$here/check.sh" >"$work/tests/gpu/check.sh"
said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" 2>&1)
wants '^skipped .* hangs: not run: the time was up before it had ended$'
wants '^gpu-check: [0-9]+ passed, [0-9] failed, '

# Without any time, nothing passes, nothing fails, and everything is reported.
sed 's/^limit=450 most=120/limit=1 most=1/' "$here/check.sh" >"$work/tests/gpu/check.sh"
said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" 2>&1)
code=$?
wants '^skipped .* fine: the time is up$'
wants '^gpu-check: 0 passed, 0 failed, 17 skipped, '
[ $code -eq 1 ] || { echo "nothing was checked, and it ended with code $code"; exit 1; }
