# shellcheck shell=sh
# all.sh: sourced by contact.sh. The step `all`: every check and measurement, the most valuable first,
# within TANDEM_SECONDS (default 560). A part that needs more seconds than are left is not begun. A
# part that fails, hangs or cannot run never ends the others. The last line names the parts that are
# left, as the command for the next call. Report, JSON and archive are written before and after each
# part that runs alone, so they survive the end of this machine. An earlier call's are kept.
: "${build:?}" "${here:?}" "${out:?}" "${work:?}" "${PARTS?}"
limit=${TANDEM_SECONDS:-560} most=100 logs=$out/all jobs=${TANDEM_CHECK_JOBS:-$(nproc)}
json=$out/all.json schema=tandem.gpu-all/1 tandem=$build/tandem
slower=${TANDEM_SLOWER:-1} # all limits are multiplied by it; the double on a busy machine needs it
for old in "$out/all.json" "$out/all.txt"; do
    i=1
    while [ -e "$out/all-$i.${old##*.}" ]; do i=$((i + 1)); done
    if [ -e "$old" ]; then mv "$old" "$out/all-$i.${old##*.}"; fi
done
tiny=$here/scripts/plans/tiny_text.lua text=$here/docs/explanation/accuracy.md
# shellcheck source=SCRIPTDIR/checks.sh
. "$here/tests/gpu/checks.sh"

# begin NAME LEAST MOST: succeeds if the part may begin. LEAST: the fewest seconds that it needs; MOST:
# seconds after which it is stopped
begin() {
    case " ${PARTS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
    least=$2 most=$(($3 * slower))
}
keep() {
    document "$schema" "$json"
    cat "$work"/*/line >"$out/all.txt" 2>/dev/null
    archived
}
part() { # NAME LEAST MOST COMMAND...: runs a part alone
    begin "$1" "$2" "$3" || return 0
    name=$1
    shift 3
    together && keep
    alone "$name" "$@"
    keep
}
aside() { # NAME LEAST MOST COMMAND...: runs a part beside others
    begin "$1" "$2" "$3" || return 0
    name=$1
    shift 3
    beside "$name" "$@"
}

# Puts each line of a command's output into the report, also if the command fails or is stopped.
told() { # COMMAND...
    "$@" >told.txt 2>&1
    code=$?
    sed 's/^/told: /' told.txt
    return $code
}
# Records the device's clock, power and temperature five times a second while a command runs.
watched() { # COMMAND...
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active \
        --format=csv,noheader -lms 200 >clock.csv 2>&1 9<&- &
    watch=$!
    "$@"
    code=$?
    kill $watch 2>/dev/null
    wait $watch 2>/dev/null
    cp clock.csv "$logs/$name-clock.csv"
    return $code
}
measured() { # SIDE PLAN: steps of a plan. A folder for each plan keeps the JSON for the other side.
    to=$out/bench/$2
    mkdir -p "$to"
    # It ends its programs itself, in time to write its JSON.
    told watched limited python3 "$here/tests/bench/gpu_bench.py" "$build" "$1" --out "$to" \
        --limit $(($(left) - 5)) "$2" >said.txt
    code=$?
    grep -v 'told: not measured' said.txt
    if [ "$1" = --ours ]; then "$tandem" compare --db "$to/gpu-bench.db" >"$logs/$2-kernels.txt" 2>&1; fi
    return $code
}
few() { TANDEM_FEW_CASES=1 limited "$@"; }
eighth() { TANDEM_PART=$1/8 limited "$build/tests/gpu_test_backend_plans"; }
tiny_in() { # GRAPHS
    trained loss "$tiny" --data "$text" --db tiny.db --backend cuda --graph "$1" \
        --set mesh.dp_shard=1 --set mesh.tp=1 --steps 12 && sed 's/^/told: /' loss
}
shared() { # N PORT PLAN ARGUMENT...: ranks that share the GPU
    n=$1 port=$2
    shift 2
    NCCL_DEBUG=WARN over_tcp "$n" "$port" "$tandem" run "$@" --db ranks.db --backend cuda --share-device \
        --graph none --timeout $((40 * slower))
}
# GPT-2's heads in a ring of two ranks against one rank
ring() {
    plan=$here/tests/gpu/ring.lua
    trained one "$plan" --db one.db --backend cuda --set mesh.cp=1 || return
    shared 2 29508 "$plan" --json --quiet || return
    sed -nE 's/.*"last_loss": ([-0-9.e+]+).*/\1/p' rank-0.txt >ring
    [ -s ring ] && near one ring && sed 's/^/told: /' one ring
}
sanitized() { # TOOL PROGRAM
    if ! command -v compute-sanitizer >/dev/null; then echo 'there is no compute-sanitizer' && return $cannot; fi
    few compute-sanitizer --tool "$1" --error-exitcode 9 "$2"
}
needs_gpu "$build" "$schema" "$json"
cd "$work" || exit 1
part rows 10 60 told limited "$build/tests/gpu_bench_rows"
part launches 5 20 told limited "$build/tests/gpu_bench_launches"
part attention 10 60 told limited "$build/tests/gpu_bench_attention"
for program in "$build"/tests/gpu_test_*; do
    kind=${program##*/gpu_}
    case $kind in test_backend_*) ;; *) aside "$kind" 5 100 few "$program" ;; esac
done
small='gpt2_124m llama_1b gpt2_1_5b'
for plan in $small; do part "$plan" 40 100 measured --ours "$plan"; done
part ring 20 60 ring
part ranks4 20 60 shared 4 29504 "$tiny" --data "$text" --steps 4
for how in none whole cut; do aside graph_$how 5 40 tiny_in $how; done
at_most 3 # whole plans take memory and time of the host
i=1
while [ $i -le 8 ]; do
    aside plans$i 40 120 eighth $i
    i=$((i + 1))
done
aside rounding 20 120 limited "$build/tests/gpu_test_backend_rounding"
for plan in llama_8b_bf16 llama_8b llama_8b_fp8; do part $plan 50 120 measured --ours $plan; done
# PyTorch was measured before, on an H200, so it comes late.
for plan in $small; do part "torch_$plan" 40 120 measured --torch "$plan"; done
for plan in llama_8b_bf16 llama_8b; do part torch_$plan 50 120 measured --torch $plan; done
for tool in memcheck racecheck synccheck; do
    aside $tool 30 100 sanitized $tool "$build/tests/gpu_test_attention"
done
printf 'all: ' >"$work/said"
finish "$schema" "$json" >>"$work/said"
code=$?
cat "$work/said"
keep
late=$(sed -n 's/.*"name": "\([^"]*\)".*"why": "[^"]*the time .*/\1/p' "$json" | tr '\n' ' ')
if [ -n "$late" ]; then echo "left for another call: PARTS='${late% }' contact all"; fi
