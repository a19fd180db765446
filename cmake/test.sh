#!/bin/sh
# Builds the given presets, runs the suite of each, and ends with one line that counts them all:
#     N passed, N failed
# A preset that does not build or has no tests counts as one failure.
set -u
cd "$(dirname "$0")/.." || exit 1
cores=$(nproc 2>/dev/null || echo 2)
jobs=$((cores + 2)) # because two tests at a time mostly wait (tests/CMakeLists.txt)
passed=0
failed=0

# Prints attribute $1 from the head of ctest's JUnit file $2.
attribute() {
    awk -v name="$1" '{
        while (match($0, /[a-z]+="[^"]*"/)) {
            split(substr($0, RSTART, RLENGTH), part, "=\"")
            if (part[1] == name) { print part[2] + 0; exit }
            $0 = substr($0, RSTART + RLENGTH)
        }
    }' "$2"
}

suite() {
    preset=$1
    report=$PWD/build/$preset/junit.xml
    rm -f "$report"
    start=$(date +%s)
    if ! cmake --preset "$preset" --log-level=NOTICE ||
        ! cmake --build --preset "$preset" -- -j $((cores + 1)) --quiet; then
        echo "$preset: the build failed"
        failed=$((failed + 1))
        return
    fi
    built=$(date +%s)
    ctest --preset "$preset" -j "$jobs" --no-tests=error --output-junit "$report"
    status=$?
    bad=0
    if [ -f "$report" ]; then
        bad=$(attribute failures "$report")
        passed=$((passed + $(attribute tests "$report") - bad - $(attribute skipped "$report") - \
            $(attribute disabled "$report")))
    fi
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    failed=$((failed + bad))
    echo "$preset: built in $((built - start)) s, tested in $(($(date +%s) - built)) s"
}

# Without nvcc the kernels are not compiled, so the user must confirm this.
if [ "$*" = arm ]; then
    cuda="CUDA: not part of the cross build"
elif [ -n "${TANDEM_NO_CUDA:-}" ]; then
    cuda="CUDA: not compiled, because TANDEM_NO_CUDA is set; its kernels ran only as C"
elif nvcc=$(command -v nvcc); then
    cuda="CUDA: compiled by $($nvcc --version | sed -n 's/^Cuda compilation tools, //p')"
else
    cuda="CUDA: nvcc is missing; put it on the PATH, or set TANDEM_NO_CUDA=1 to do without"
    failed=1
fi
if sh cmake/deps.sh test; then
    for preset in "$@"; do suite "$preset"; done
else
    failed=1
fi
echo "$cuda"
mkdir -p build
echo "$passed passed, $failed failed" | tee build/test-summary.txt
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
