#!/bin/sh
# same.sh gcc-O0|clang-O2 COMMAND FOLDER: builds Tandem in FOLDER with another compiler, with
# warnings as errors. It compares the result with COMMAND: the exact text of every shipped plan, and
# its simulation. C does not order the side effects of arguments, so a plan could depend on the
# compiler. Exit code 77, "skipped", if the compiler is not installed.
other=${1:?gcc-O0 or clang-O2} command=${2:?the path of the command} folder=${3:?a folder to build in}
source=$(realpath "$(dirname "$0")/../..")
case $other in
gcc-O0) compiler=gcc type=Debug ;;
clang-O2) compiler=clang type=Release ;;
*) echo "same.sh: no compiler '$other'" >&2 && exit 2 ;;
esac
command -v $compiler >/dev/null 2>&1 || { echo "$compiler is not installed: skipped" && exit 77; }
build=$folder/$other
mkdir -p "$build" || exit 1
# Without debug information, which nothing compares, the builds take less time.
if ! { cmake -S "$source" -B "$build" -G Ninja -DCMAKE_C_COMPILER=$compiler -DCMAKE_BUILD_TYPE=$type \
    -DCMAKE_C_FLAGS_DEBUG=-O0 -DCMAKE_C_FLAGS_RELEASE=-O2 \
    -DTANDEM_WERROR=ON -DTANDEM_TESTS=OFF -DTANDEM_MPI=OFF -DTANDEM_CUDA=OFF --log-level=NOTICE &&
    cmake --build "$build" --target tandem -- --quiet; } >"$build/log" 2>&1; then
    cat "$build/log"
    exit 1
fi
cd "$source" || exit 1
compared=0 differ=0
for plan in scripts/plans/*.lua scripts/plans/*/*.lua; do
    for verb in "show $plan --text" "sim $plan --json --db none"; do
        # The exit code is part of the comparison: some plans do not fit.
        "$command" $verb >"$build/ours" 2>&1
        echo "exit $?" >>"$build/ours"
        "$build/tandem" $verb >"$build/theirs" 2>&1
        echo "exit $?" >>"$build/theirs"
        sed -i "s,$command,tandem,; s,$build/tandem,tandem,; /^loc /d" "$build/ours" "$build/theirs"
        compared=$((compared + 1))
        if ! cmp -s "$build/ours" "$build/theirs"; then
            differ=$((differ + 1))
            echo "tandem $verb: $other gives another text"
            diff "$build/ours" "$build/theirs" | head -6
        fi
    done
done
echo "$other: $compared texts compared, $differ differ"
[ "$compared" -ge 26 ] && [ "$differ" -eq 0 ]
