#!/bin/sh
# Checks the code that ptxas makes of Hopper's attention and its gradient. There must be no spilled
# registers, and exactly as many registers as a block of three warpgroups begins with. No product
# may be awaited earlier than in the source (its C75xx remarks). The intended instructions must be
# there. In the machine code, exponentials must run while products do. Then it compiles kernels that
# read a running product, which must be reported. Arguments: nvcc, a working folder.
set -u
nvcc=$1
work=$2
failed=0
fail()
{
    echo "hopper_code: $*" >&2
    failed=1
}

# compile NAME FILE: NAME.cubin, NAME.ptx, NAME.log
compile()
{
    "$nvcc" -std=c++17 -O3 -fmad=false -I. -gencode arch=compute_90a,code=sm_90a -ptx \
        -o "$work/$1.ptx" "$2" >"$work/$1.log" 2>&1 &&
        "$nvcc" -gencode arch=compute_90a,code=sm_90a -cubin -Xptxas=-v,-warn-spills \
            -o "$work/$1.cubin" "$work/$1.ptx" >>"$work/$1.log" 2>&1 && return
    cat "$work/$1.log" >&2
    exit 1
}

count()
{
    grep -c -E "$1" "$2"
}

only=cat # the part of a changed source that is compiled

# sabotage SOURCE NAME AWK: compiles NAME, the source as changed by an awk program.
sabotage()
{
    awk "$3" "kernels/cuda/attention/hopper/$1.cuh" >"$work/kernels/cuda/attention/hopper/$1.cuh"
    cmp -s "kernels/cuda/attention/hopper/$1.cuh" "$work/kernels/cuda/attention/hopper/$1.cuh" &&
        fail "$1: the line that is to be left out is not found"
    sed "s|\"kernels/cuda/attention/hopper/$1.cuh\"|\"$work/kernels/cuda/attention/hopper/$1.cuh\"|" "kernels/cuda/attention/hopper/$1.cu" |
        $only >"$work/$2.cu"
    compile "$2" "$work/$2.cu"
}

# one_kernel: keeps the kernel of one dtype and one head size, and leaves out the functions that choose one.
one_kernel()
{
    sed '/attention_hopper_each\.cuh/,$d'
    echo '#define NAME(name) name##_bf16_64'
    echo '#define TYPE bf16'
    echo '#define HEAD 64'
    echo '#include BODY'
}

# hasty SOURCE N: compiles one kernel of the source without its N-th wait for a product; ptxas must
# report it.
hasty()
{
    only=one_kernel
    sabotage "$1" hasty "/^        products_wait\(1\);|^    products_wait\(1\);/ && ++n == $2 { next } { print }"
    [ "$(count 'Compiling entry function' "$work/hasty.log")" -eq 1 ] || fail "$1: not one kernel"
    grep -q 'C75[0-9][0-9]' "$work/hasty.log" ||
        fail "$1: a product read under way is not remarked on"
}

# overlap NAME FIRST LAST: counts, for each kernel, the exponentials between two waits: one that
# leaves FIRST groups of products running, and the next one, which leaves LAST. These exponentials
# run at the same time as products.
overlap()
{
    "$dump" -sass "$work/$1.cubin" | awk -v first="$2" -v last="$3" '
        /Function :/ { name = $3; open = 0 }
        /MUFU\.EX2/ { n++ }
        /WARPGROUP\.DEPBAR\.LE/ {
            if (open && index($0, "gsb0, 0x" last)) print name, n
            open = index($0, "gsb0, 0x" first) > 0
            n = 0
        }'
}

# overlaps NAME FIRST LAST LEAST_64 LEAST_128: succeeds if each of the four kernels has so many
# exponentials there (by its head size), or up to two more, which rescale sums. A thread has 64
# scores of a tile with 128 columns, and 32 of a tile with 64.
overlaps()
{
    overlap "$@" >"$work/$1.overlap"
    [ "$(wc -l <"$work/$1.overlap")" -eq 4 ] &&
        awk -v of_64="$4" -v of_128="$5" '
            { least = $1 ~ /_64[0-9]*Hopper/ ? of_64 : of_128 }
            $2 < least || $2 > least + 2 { bad = 1 }
            END { exit bad }' "$work/$1.overlap"
}

look_at()
{
    compile "$1" "kernels/cuda/attention/hopper/$1.cu"
    log=$work/$1.log
    kernels=$(count 'Compiling entry function' "$log")
    [ "$kernels" -eq 4 ] || fail "$1: $kernels kernels, expected 4"
    clean=$(count ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$log")
    [ "$clean" -eq "$kernels" ] || fail "$1: registers are spilled: $(grep 'bytes spill' "$log")"
    fitting=$(count 'Used 168 registers' "$log")
    [ "$fitting" -eq "$kernels" ] || fail "$1: registers: $(grep 'Used' "$log")"
    remarks=$(grep -E 'C75[0-9][0-9]|wgmma|setmaxnreg' "$log")
    [ -z "$remarks" ] || fail "$1: $remarks"
    shift
    for word in 'fence\.mbarrier_init' 'fence\.proxy\.async' 'cp\.async\.bulk\.tensor\.4d' 'mbarrier\.try_wait\.parity' 'setmaxnreg\.inc' "$@"; do
        grep -q -E "$word" "${log%.log}.ptx" || fail "no $word in ${log%.log}.ptx"
    done
}

mkdir -p "$work/kernels/cuda/attention/hopper"
product='wgmma\.mma_async\.sync\.aligned'
look_at attention_hopper "$product\.m64n128k16\.f32\.bf16" "$product\.m64n64k16\.f32\.f16"
look_at attention_hopper_queries "$product\.m64n128k16\.f32\.bf16" "$product\.m64n64k16\.f32\.f16"
look_at attention_hopper_keys "$product\.m64n128k16\.f32\.bf16" "$product\.m64n64k16\.f32\.f16"
look_at attention_hopper_grad "$product\.m64n128k16\.f32\.bf16" "$product\.m64n64k16\.f32\.f16" 'cp\.reduce\.async\.bulk' 'ld\.acquire\.gpu' 'st\.release\.gpu'
# Not every toolkit has the disassembler; pip offers it as nvidia-cuda-cuobjdump and -nvdisasm.
find_dump()
{
    command -v cuobjdump || command -v "$(dirname "$nvcc")/cuobjdump" && return
    for folder in $(python3 -c 'import nvidia; print(*nvidia.__path__)' 2>/dev/null); do
        command -v "$folder"/*/bin/cuobjdump && return
    done
    return 1
}

if dump=$(find_dump) &&
    "$dump" -sass "$work/attention_hopper.cubin" >"$work/sound.sass" 2>/dev/null; then
    for source in attention_hopper attention_hopper_queries attention_hopper_keys attention_hopper_grad; do
        "$dump" -sass "$work/$source.cubin" >"$work/sound.sass" || fail "$source: no machine code"
        for word in HGMMA UTMALDG USETMAXREG SYNCS; do
            grep -q "$word" "$work/sound.sass" || fail "$source: no $word in the machine code"
        done
    done
    # With heads of 64, a quarter of the exponentials is computed by multiplications.
    overlaps attention_hopper 1 0 48 64 ||
        fail "the softmax does not run beside the second product: $(cat "$work/attention_hopper.overlap")"
    overlaps attention_hopper_queries 2 1 64 32 ||
        fail "exponentials do not run beside the queries' products: $(cat "$work/attention_hopper_queries.overlap")"
    # Without a barrier, this compiler moves the wait up.
    if "$nvcc" --version | grep -q 'release 13\.0'; then
        sabotage attention_hopper eager '!/products_wait_behind/'
        ! overlaps eager 1 0 48 64 || fail "a wait that comes too early is not seen"
    fi
else
    echo "hopper_code: no cuobjdump that works here: the machine code is not looked at"
fi

hasty attention_hopper 1
hasty attention_hopper_queries 1
hasty attention_hopper_keys 1
hasty attention_hopper_keys 2
hasty attention_hopper_grad 1
hasty attention_hopper_grad 2
exit $failed
