#!/bin/sh
# contact.sh STEP [OUT]: a step of the checks and measurements on a machine with a GPU. It is the
# program `contact` of the pack that pack.sh makes; it needs a CUDA driver, Python with PyTorch or a
# CUDA toolkit, and no network, compiler or package manager. OUT, the folder for JSON and logs, is
# `tandem-gpu-out` unless it is named, or $OUT is set. OUT.tar.gz, or the file $ARCHIVE, holds all of
# it; the step `all` writes the archive after each part. Each step ends within 10 minutes:
#
#     all      every check and measurement, the most valuable first, in TANDEM_SECONDS (default 560). It
#              names the parts that are left; PARTS='NAME...' carries out only these
#     smoke    each family of kernels, a tiny plan in three graph modes, ranks that share the GPU and
#              meet over TCP, GPT-2 124M: checks results, end and speed
#     check    all of tests/gpu/check.sh
#     bench    training steps of the plans that fit the device, ours alone
#     bench8b  the same for the plans of 8B
#     torch, torch8b    PyTorch's side of both; each adds its rows to the JSON of `bench`, `bench8b`
#
# Exit code 0: all is well; 1: something failed; 6: there is no GPU here.
here=$(realpath "$(dirname "$0")")
step=${1:-}
out=${2:-${OUT:-tandem-gpu-out}}
build=$here/build
case $step in
all | smoke | check | bench | bench8b | torch | torch8b) ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
mkdir -p "$out/$step" && out=$(realpath "$out") || exit 1
archive=$(realpath -m "${ARCHIVE:-$out.tar.gz}")
work=$(mktemp -d) || exit 1
# A reader never finds half of an archive.
archived() { tar -C "${out%/*}" -czf "$work/new.tar.gz" "${out##*/}" && mv "$work/new.tar.gz" "$archive"; }
trap 'archived; rm -rf "$work"' EXIT
# shellcheck source=SCRIPTDIR/machine.sh
. "$here/tests/gpu/machine.sh"
echo "libraries of the pack in use:${added:- none}"
if [ -n "$absent" ]; then echo "not found here, and not in the pack: $absent"; fi
{
    ldd "$build/tandem_cuda.so"
    timeout 20 nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version,clocks.max.sm --format=csv,noheader
} >"$out/$step/machine.txt" 2>&1

smoke() {
    limit=500 most=100 logs=$out/smoke jobs=${TANDEM_CHECK_JOBS:-$(nproc)}
    json=$out/smoke.json tandem=$build/tandem
    tiny=$here/scripts/plans/tiny_text.lua text=$here/docs/explanation/accuracy.md
    # shellcheck source=SCRIPTDIR/checks.sh
    . "$here/tests/gpu/checks.sh"
    needs_gpu "$build" tandem.gpu-smoke/1 "$json"
    cd "$work" || exit 1
    told() { sed 's/^/told: /'; }
    ceilings() { limited "$build/tests/gpu_ceilings" >ceilings.json && told <ceilings.json; }
    few() { TANDEM_FEW_CASES=1 limited "$1"; }
    tiny() { # HOW
        trained loss "$tiny" --data "$text" --db tiny.db --backend cuda --graph "$1" \
            --set mesh.dp_shard=1 --set mesh.tp=1 --steps 12 && told <loss
    }
    ranks() { # N PORT ARGUMENT...
        n=$1 port=$2
        shift 2
        NCCL_DEBUG=WARN over_tcp "$n" "$port" "$tandem" run "$tiny" --data "$text" --db ranks.db --backend cuda \
            --share-device --graph none --steps 4 --timeout 40 "$@"
    }
    # Runs some steps of a plan. The logs compare the time of each kernel with its prediction.
    steps() { # NAME ARGUMENT...
        plan=$1
        shift
        limited "$tandem" run "$here/scripts/plans/one_gpu/$plan.lua" --backend cuda --steps 5 --db "$plan.db" -v "$@" ||
            return
        limited "$tandem" compare --db "$plan.db"
        cp "$plan.db" "$logs/$plan$(echo "$*" | tr -d ' /').db"
    }
    has_cudnn() {
        echo "$LD_LIBRARY_PATH" | tr ':' '\n' | while read -r folder; do
            if [ -e "$folder/libcudnn.so.9" ]; then echo "$folder"; fi
        done | grep -q .
    }
    alone 'ceilings' ceilings
    # Runs all programs except those of whole plans, which `check` runs. Attention comes first, because it
    # might hang.
    for program in "$build"/tests/gpu_test_*; do
        kind=${program##*/gpu_test_}
        case $kind in backend_*) ;; *) beside "$kind" few "$program" ;; esac
    done
    for how in none whole cut; do beside "tiny plan, --graph $how" tiny $how; done
    alone 'two ranks on one GPU, over TCP' ranks 2 29502 --set mesh.tp=1
    alone 'four ranks on one GPU, over TCP' ranks 4 29504
    alone 'GPT-2 124M' steps gpt2_124m
    alone 'GPT-2 124M, --mma' steps gpt2_124m --mma
    if has_cudnn; then
        alone 'GPT-2 124M, --cudnn' steps gpt2_124m --cudnn
    else
        skip 'GPT-2 124M, --cudnn' 'there is no libcudnn.so.9'
    fi
    alone 'Llama 1B' steps llama_1b
    printf 'smoke: ' >"$work/said"
    finish tandem.gpu-smoke/1 "$json" >>"$work/said"
    code=$?
    cat "$work/said"
    return $code
}

check() {
    TANDEM_CHECK_LOGS=$out/check sh "$here/tests/gpu/check.sh" "$build" "$out/check"
    code=$?
    cp "$out/check/gpu-check.json" "$out/check.json"
    return $code
}

# bench NAME ARGUMENT...: the folder NAME keeps the JSON, so that PyTorch's side can be added to it.
bench() {
    name=$1
    shift
    mkdir -p "$out/$name"
    python3 "$here/tests/bench/gpu_bench.py" "$build" --out "$out/$name" "$@" >"$out/$step/bench.txt" 2>&1
    code=$?
    cat "$out/$step/bench.txt"
    cp "$out/$name/gpu-bench.json" "$out/$name.json"
    return $code
}

small='gpt2_124m gpt2_1_5b llama_1b' large='llama_8b llama_8b_fp8 llama_8b_bf16'
# shellcheck disable=SC2086
case $step in
all)
    PARTS=${PARTS:-}
    # shellcheck source=SCRIPTDIR/all.sh
    . "$here/tests/gpu/all.sh"
    exit "$code"
    ;;
smoke) smoke ;;
check) check ;;
bench) bench bench --ours $small ;;
bench8b) bench bench8b --ours $large ;;
torch) bench bench --torch $small ;;
torch8b) bench bench8b --torch $large ;;
esac
