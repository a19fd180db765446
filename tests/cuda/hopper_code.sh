#!/bin/sh
# What ptxas makes of Hopper's attention: no spilled registers, as many registers as a block of three
# warpgroups begins with, no product waited for where the source does not (its C75xx remarks), and
# the instructions that the kernel is written for. Then a kernel that reads a product under way,
# which must be seen. Arguments: nvcc, where to work.
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

mkdir -p "$work"
compile sound kernels/cuda/attention_hopper.cu
log=$work/sound.log
ptx=$work/sound.ptx
kernels=$(count 'Compiling entry function' "$log")
[ "$kernels" -eq 4 ] || fail "$kernels kernels, expected 4"
clean=$(count ' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' "$log")
[ "$clean" -eq "$kernels" ] || fail "registers are spilled: $(grep 'bytes spill' "$log")"
fitting=$(count 'Used 168 registers' "$log")
[ "$fitting" -eq "$kernels" ] || fail "registers: $(grep 'Used' "$log")"
remarks=$(grep -E 'C75[0-9][0-9]|wgmma|setmaxnreg' "$log")
[ -z "$remarks" ] || fail "$remarks"
for word in 'wgmma\.mma_async\.sync\.aligned\.m64n128k16\.f32\.bf16' \
    'wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16' 'cp\.async\.bulk\.tensor\.4d' \
    'mbarrier\.try_wait\.parity' 'setmaxnreg\.inc'; do
    grep -q -E "$word" "$ptx" || fail "no $word in the PTX"
done
# Not every toolkit has the disassembler.
if dump=$(command -v cuobjdump || command -v "$(dirname "$nvcc")/cuobjdump") &&
    "$dump" -sass "$work/sound.cubin" >"$work/sound.sass" 2>/dev/null; then
    for word in HGMMA UTMALDG USETMAXREG SYNCS; do
        grep -q "$word" "$work/sound.sass" || fail "no $word in the machine code"
    done
else
    echo "hopper_code: no cuobjdump that works here: the machine code is not looked at"
fi

mkdir -p "$work/kernels/cuda"
cp kernels/cuda/attention_hopper.cu "$work/hasty.cu"
sed 's/^        products_wait(1);//' kernels/cuda/attention_hopper.cuh \
    >"$work/kernels/cuda/attention_hopper.cuh"
cmp -s kernels/cuda/attention_hopper.cuh "$work/kernels/cuda/attention_hopper.cuh" &&
    fail "the wait that is to be left out is not found"
sed "s|\"kernels/cuda/attention_hopper.cuh\"|\"$work/kernels/cuda/attention_hopper.cuh\"|" \
    kernels/cuda/attention_hopper.cu >"$work/hasty.cu"
compile hasty "$work/hasty.cu"
grep -q 'C75[0-9][0-9]' "$work/hasty.log" || fail "a product read under way is not remarked on"
exit $failed
