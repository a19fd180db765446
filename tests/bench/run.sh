#!/bin/sh
# Measures the speed of the engine and of the whole command, and counts instructions, into
# tests/bench/results.md. Argument: the build folder (default build/release).
set -eu
build=${1:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

cc=${CC:-cc}
flags="-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -I."
libraries="-Wl,--start-group $build/libtandem_sim.a $build/libtandem_store.a $build/libtandem_ir.a $build/libtandem_base.a"
libraries="$libraries -Wl,--end-group -lsqlite3 -lz -lm"
# shellcheck disable=SC2086
$cc $flags tests/bench/bench_engine.c $libraries -o "$work/engine"
# shellcheck disable=SC2086
$cc $flags tests/bench/bench_command.c -o "$work/command"

tandem=$build/tandem
plan=scripts/plans/llama3_8b.lua

# The best of five runs, because other processes can only slow it down.
best() {
    for _ in 1 2 3 4 5; do "$@"; done | awk '
        { split($0, f, "s: "); split(f[2], g, " "); if (g[1] > most) { most = g[1]; line = $0 } }
        END { print line }'
}

# Counts the instructions of the command, then the instructions of the processes that it forked. The
# count of a forked process starts at the command's start, so it includes the command's instructions
# up to the fork.
counts() {
    if ! command -v valgrind >/dev/null 2>&1; then
        echo "valgrind is not installed"
        return
    fi
    valgrind --tool=callgrind --callgrind-out-file="$work/callgrind.%p" "$@" 2>"$work/log" \
        >/dev/null || true
    grep -h '^summary:' "$work"/callgrind.* | sort -k2 -rn |
        awk '{ printf "%s%.1f million", sep, $2 / 1e6; sep = "; forked: " } END { print "" }'
    rm -f "$work"/callgrind.*
}

# Prints a row with the count of a command, and the command.
counted() {
    what=$1
    shift
    told=$(echo "$*" | sed "s#^$tandem#tandem#; s#$work/##g")
    echo "| instructions (callgrind) of $what: \`$told\` | $(counts "$@") | |"
}

# Prints the largest resident memory of a command, in MiB, as GNU time reports it.
most_memory() {
    if [ ! -x /usr/bin/time ]; then
        echo "GNU time is not installed"
        return
    fi
    /usr/bin/time -f %M -o "$work/memory" "$@" >/dev/null 2>&1 || true
    awk '{ printf "%.0f MiB\n", $1 / 1024 }' "$work/memory"
}

# Counts the bytes that a point adds to a store. An empty store has its tables already.
stored_bytes() {
    rm -f "$work/e.db"
    "$tandem" db prune --db "$work/e.db" >/dev/null
    empty=$(stat -c %s "$work/e.db")
    echo $((($(stat -c %s "$1") - empty) / 27))
}

{
    echo "# Measured by \`make bench\`"
    echo
    echo "Machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores;" \
        "compiler: $($cc --version | head -1)."
    echo "Load average when it began (times mean little far above 0): $(cut -d' ' -f1 /proc/loadavg)."
    echo
    echo "One event is one instruction finished on one simulated rank; 16 ranks, unfolded, one core."
    echo
    echo "| what | result | aim |"
    echo "|---|---|---|"
    echo "| engine, transfers of fixed time | $(best "$work/engine" 100 fixed) | 10 million/s |"
    echo "| engine with the network model | $(best "$work/engine" 20 network) | |"
    if [ -x "$tandem" ]; then
        echo "| \`tandem sim\` Llama-3.1-8B on 16 GPUs (plan, check, simulate, store), whole process |" \
            "$("$work/command" 15 "$work/t.db" "$tandem" sim "$plan" --db "$work/t.db") | 50 ms |"
        "$tandem" sim "$plan" --db "$work/t.db" >/dev/null
        echo "| \`tandem sim\` of the same again, answered from the store |" \
            "$("$work/command" 15 - "$tandem" sim "$plan" --db "$work/t.db") | 5 ms |"
        echo "| \`tandem check\` of the same | $("$work/command" 15 - "$tandem" check "$plan" \
            --db "$work/t.db") | |"
        echo "| \`tandem check\` of Llama-3.1-405B on 16,384 GPUs (pp 16, tp 8, 16 micro-batches), proofs" \
            "included | $("$work/command" 5 - "$tandem" check scripts/plans/llama3_405b.lua) | 1000 ms |"
        rm -f "$work/t.db"
        counted "8B, new store" "$tandem" sim "$plan" --db "$work/t.db"
        counted "the same again, answered from the store" "$tandem" sim "$plan" --db "$work/t.db"
        counted "405B on 16,384 GPUs" "$tandem" sim scripts/plans/llama3_405b.lua --db none
        echo "| most memory of \`tandem sim\` of 405B on 16,384 GPUs |" \
            "$(most_memory "$tandem" sim scripts/plans/llama3_405b.lua --db none) | 300 MiB |"
        sweep="sweep $plan --set mesh.dp_shard=-1 --try mesh.tp=1,2,4 --try batch.micro=1,2,4"
        sweep="$sweep --try parallel.ac=none,selective,full -j 1 --db $work/s.db"
        # shellcheck disable=SC2086
        counted "the sweep of 27 plans, new store" "$tandem" $sweep
        # shellcheck disable=SC2086
        echo "| \`tandem sweep\` of 27 plans of 8B, simulated and stored, one process |" \
            "$("$work/command" 3 "$work/s.db" "$tandem" $sweep) | 90 ms of processor time |"
        # shellcheck disable=SC2086
        echo "| the same again: 27 look-ups | $("$work/command" 5 - "$tandem" $sweep) | 27 ms |"
        # shellcheck disable=SC2086
        counted "the look-ups" "$tandem" $sweep
        echo "| stored bytes of a point: the 27 plans' store, less an empty one, divided by 27 |" \
            "$(stored_bytes "$work/s.db") | 8192 |"
        other="sweep $plan --set mesh.dp_shard=-1 --try cluster=dgx_h100,dgx_a100,hgx_h200"
        other="$other --try runtime=none,torchtitan,megatron,deepspeed --try mesh.tp=1,2 -j 1 --db none"
        # shellcheck disable=SC2086
        echo "| \`tandem sweep\` of 24 points of 8B on three clusters under four runtimes, one process |" \
            "$("$work/command" 5 - "$tandem" $other) | |"
        # shellcheck disable=SC2086
        counted "24 points of 8B on three clusters under four runtimes" "$tandem" $other
        many="sweep $plan --set mesh.dp_shard=-1 --set batch.global=256 --try mesh.tp=1,2,4"
        many="$many --try batch.micro=1,2 --try parallel.ac=none,selective,full -j 1 --db none"
        # shellcheck disable=SC2086
        echo "| \`tandem sweep\` of 18 plans of 8B with 8 to 64 micro-batches, one process |" \
            "$("$work/command" 3 - "$tandem" $many) | 60 ms of processor time |"
        # shellcheck disable=SC2086
        echo "| the same with every micro-batch simulated (--exact) |" \
            "$("$work/command" 3 - "$tandem" $many --exact) | |"
        # shellcheck disable=SC2086
        counted "the sweep" "$tandem" $many
        # shellcheck disable=SC2086
        counted "it with --exact" "$tandem" $many --exact
        echo "| \`tandem search\` of 8B with one micro-batch size, bounds on, one process |" \
            "$("$work/command" 1 - "$tandem" search "$plan" --set batch.micro=1 -j 1 --db none) | |"
        echo "| \`tandem search\` of 70B on 16 GPUs, 511 points, one process |" \
            "$("$work/command" 1 - "$tandem" search scripts/plans/llama3_70b.lua \
                --set cluster.nodes=2 --set mesh.dp_shard=-1 -j 1 --db none) | |"
        pipe="sweep scripts/plans/llama3_70b_pp.lua --set cluster.nodes=64 --set mesh.dp_shard=-1"
        # shellcheck disable=SC2086
        echo "| \`tandem sweep\` of one plan of 70B on 512 GPUs, 16 stages, 64 micro-batches |" \
            "$("$work/command" 3 - "$tandem" $pipe --set batch.global=256 --try mesh.pp=16 -j 1 \
                --db none) | 20 ms of processor time |"
        # shellcheck disable=SC2086
        counted "the same" "$tandem" $pipe --set batch.global=256 --try mesh.pp=16 -j 1 --db none
        ranks="sim scripts/plans/llama3_70b_pp.lua --set cluster.nodes=128 --set mesh.dp_shard=-1"
        ranks="$ranks --set batch.global=256 --db none"
        # shellcheck disable=SC2086
        echo "| \`tandem sim --unfolded\` of 70B on 1,024 GPUs, 11.3 million instructions |" \
            "$("$work/command" 3 - "$tandem" $ranks --unfolded) | 560 ms and the planning |"
        # shellcheck disable=SC2086
        echo "| the same ranks with scattered times (--jitter 0.05) |" \
            "$("$work/command" 3 - "$tandem" $ranks --jitter 0.05) | |"
        echo "| instructions (callgrind) of the engine, 2 steps | $(counts "$work/engine" 2 fixed) | |"
    fi
} >"$work/results.md"
cp "$work/results.md" tests/bench/results.md
cat tests/bench/results.md
