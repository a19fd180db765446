#!/bin/sh
# pack.sh BUILD: packs Tandem for a machine with a GPU, but without a network and a compiler, into
# BUILD/tandem-gpu.tar.xz: the command, its modules, the programs that check it, the Lua library, the
# scripts, and the small libraries that such a machine may lack. CUDA, NCCL and cuDNN are not in it:
# they are large, and PyTorch's packages hold them. The archive has at most 40 MiB.
build=$(realpath "${1:?the build folder}") || exit 2
source=$(realpath "$(dirname "$0")/../..")
most=$((40 << 20)) name=tandem-gpu
for need in tandem tandem_cuda.so tests/gpu_ceilings tests/gpu_test_attention; do
    if [ ! -e "$build/$need" ]; then
        echo "pack: $build/$need is missing: build where nvcc, cuBLAS, NCCL and cmocka are installed" >&2
        exit 1
    fi
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
top=$work/$name
mkdir -p "$top/build/tests" "$top/lib" || exit 1

# Only the programs for GPUs, because a build folder holds more.
cp "$build/tandem" "$build"/tandem_*.so "$top/build/" || exit 1
for program in "$build"/tests/gpu_*; do
    if [ -f "$program" ] && [ -x "$program" ]; then cp "$program" "$top/build/tests/"; fi
done
find "$top/build" -type f -exec strip -g {} + || exit 1

# The libraries that these programs load, each in a folder of its own. machine.sh takes those that a
# machine lacks. Left out: the C library, the driver, CUDA's large libraries, and MPI, which must be the machine's.
# OpenBLAS is loaded at the first kernel, so ldd does not list it.
blas=$(grep -aoE '/[^ ]*/libopenblas[a-z0-9.]*' "$top/build/tandem" | head -1)
[ -e "${blas:-none}" ] || blas=$(ldconfig -p | awk '$1 == "libopenblas.so.0" { print $NF; exit }')
{
    for file in "$top/build/tandem" "$top/build/tandem_cuda.so" "$top"/build/tests/gpu_* "$blas"; do ldd "$file"; done
    echo "libopenblas.so.0 => $blas"
} |
    awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
    grep -vE '^(ld-linux.*|lib(c|m|dl|pthread|rt|cuda|cudart|cublas|cublasLt|nccl))\.so' |
    while read -r library path; do
        mkdir "$top/lib/$library" && cp -L "$path" "$top/lib/$library/$library" || exit 1
    done || exit 1

# The sources keep their places, because the scripts find each other by them.
mkdir -p "$top/tests/gpu" "$top/tests/bench" "$top/docs/explanation" || exit 1
cp -R "$source/scripts" "$top/scripts" || exit 1
cp "$source/docs/explanation/accuracy.md" "$top/docs/explanation/" || exit 1
cp "$source"/tests/bench/gpu_bench.py "$source"/tests/bench/gpu_judge.py "$source"/tests/bench/gpu_torch.py \
    "$top/tests/bench/" || exit 1
for file in all.sh check.sh checks.sh machine.sh ring.lua; do
    cp "$source/tests/gpu/$file" "$top/tests/gpu/" || exit 1
done
cp "$source/tests/gpu/contact.sh" "$top/contact" || exit 1
cp "$source/tests/gpu/command.sh" "$top/tandem" || exit 1
cp "$source/LICENSE" "$top/" || exit 1
chmod +x "$top/contact" "$top/tandem"

# The programs contain the same kernels, which the compressor finds with a window as large as all
# programs.
archive=$build/$name.tar.xz
tar -C "$work" --sort=name --owner=0 --group=0 --mtime=@0 -cf - "$name" |
    xz -T1 --lzma2=preset=0,dict=256MiB >"$archive" || exit 1
bytes=$(stat -c %s "$archive")
if [ "$bytes" -gt $most ]; then
    echo "pack: $archive has $bytes bytes, more than $most" >&2
    exit 1
fi
echo "$archive: $((bytes >> 10)) KiB; libraries in it: $(cd "$top/lib" && echo *)"
