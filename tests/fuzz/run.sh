#!/bin/sh
# Runs every fuzz target for some seconds each: run.sh BUILD SECONDS. Inputs that reach new code are
# kept under BUILD/corpus. Prints executions and edges; fails if a target fails. An input that took 2 s
# is tried again alone, and must end in 2 s of processor time.
set -u
build=$1
seconds=$2
here=$(dirname "$0")
failed=0
for target in "$build"/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    name=${name#fuzz_}
    mkdir -p "$build/corpus/$name"
    log=$build/fuzz_$name.log
    rm -f "$build/$name"-slow-unit-*
    if "$target" -max_total_time="$seconds" -timeout=10 -report_slow_units=2 -rss_limit_mb=4096 -max_len=60000 \
        -artifact_prefix="$build/$name-" "$build/corpus/$name" "$here/corpus/$name" >"$log" 2>&1; then
        end=passed
    else
        end=FAILED
        failed=1
    fi
    for slow in "$build/$name"-slow-unit-*; do
        [ -f "$slow" ] || continue
        if ! (ulimit -t 2 && exec "$target" "$slow") >>"$log" 2>&1; then
            echo "$slow takes more than 2 s of processor time" >>"$log"
            end=FAILED
            failed=1
        fi
    done
    awk -v name="$name" -v end="$end" '/cov:/ { for (i = 1; i <= NF; i++) if ($i == "cov:") edges = $(i + 1) }
        /^#[0-9]/ { sub("#", "", $1); runs = $1 }
        END { printf "%-12s %10d executions %7d edges  %s\n", name, runs, edges, end }' "$log"
    [ "$end" = passed ] || tail -n 30 "$log"
done
exit $failed
