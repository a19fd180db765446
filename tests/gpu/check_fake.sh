#!/bin/sh
# check_fake.sh: check.sh on a made-up build: what passes, fails, hangs or cannot run is counted as such.
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/tests" "$work/tests/gpu" "$work/scripts/plans" "$work/bin" || exit 1
touch "$work/build/tandem_cuda.so"
# Shorter limits, and no tool but those named: no mpirun, no compute-sanitizer.
sed 's/^limit=450 most=120/limit=60 most=6/' "$here/check.sh" >"$work/tests/gpu/check.sh"
for tool in sh realpath dirname mktemp rm date grep sed tail basename timeout awk cmp cat sleep; do
    ln -s "$(command -v $tool)" "$work/bin/$tool" || exit 1
done
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/build/$1"
    chmod +x "$work/build/$1"
}
# shellcheck disable=SC2016
program tandem 'case $1 in doctor) echo "ok gpu 0" ;; *) echo "{ \"last_loss\": 2.5 }" ;; esac'
program tests/gpu_test_broken 'echo wrong; exit 3'
program tests/gpu_test_fine 'exit 0'
program tests/gpu_test_hangs 'sleep 60'
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
wants '^FAILED .* hangs: not done in time$'
wants '^passed .* one rank: the loss of the CPU$'
wants '^skipped .* through the host: there is no mpirun$'
wants '^skipped .* memcheck, plan: there is no compute-sanitizer$'
wants '^gpu-check: [0-9]+ passed, 2 failed, 11 skipped, '
[ "$(grep -c '"verdict": "skipped", "seconds": 0, "why": "there is no ' "$work/build/gpu-check.json")" -eq 11 ] || exit 1
grep -q '"failures": 2, "skipped": 11' "$work/build/gpu-check.json" || exit 1
# No time at all: nothing passes, nothing fails, all is told.
sed 's/^limit=450 most=120/limit=1 most=1/' "$here/check.sh" >"$work/tests/gpu/check.sh"
said=$(PATH=$work/bin sh "$work/tests/gpu/check.sh" "$work/build" 2>&1)
code=$?
wants '^skipped .* fine: the time is up$'
wants '^gpu-check: 0 passed, 0 failed, 16 skipped, '
[ $code -eq 1 ] || { echo "nothing was checked, and it ended with code $code"; exit 1; }
