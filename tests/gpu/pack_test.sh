#!/bin/sh
# pack_test.sh BUILD: packs BUILD, unpacks the archive into an empty folder, and runs the pack there
# with an empty environment and all GPUs hidden. The command works, and every step says that there is
# no GPU. All libraries that the pack's programs load are in the pack, or belong to the system or CUDA.
build=$(realpath "${1:?the build folder}") || exit 2
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$@"
    exit 1
}
sh "$here/pack.sh" "$build" || exit 1
mkdir "$work/root" "$work/cwd" "$work/bin" && cd "$work/root" || exit 1
xz -dc "$build/tandem-gpu.tar.xz" | tar xf - || exit 1
pack=$work/root/tandem-gpu
cd "$work/cwd" || exit 1
clean() { env -i PATH=/usr/bin:/bin CUDA_VISIBLE_DEVICES='' "$@"; }

for file in "$pack"/build/tandem "$pack"/build/tandem_cuda.so "$pack"/build/tests/gpu_* "$pack"/lib/*/*; do
    readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | while read -r library; do
        case $library in
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
        libcudart.so.* | libcublasLt.so.* | libnccl.so.*) ;;
        *) [ -f "$pack/lib/$library/$library" ] || fail "$file needs $library, which is not in the pack" ;;
        esac
    done || exit 1
done

# Every program and script that the steps name is in the pack.
grep -ohE 'tests/(gpu|bench)[/_][a-z_.]*[a-z]' "$pack/contact" "$pack"/tests/gpu/*.sh | grep -v 'gpu_test$' |
    sort -u | while read -r named; do
    [ -f "$pack/$named" ] || [ -x "$pack/build/$named" ] || fail "the pack lacks $named"
done || exit 1

said=$(clean "$pack/tandem" sim "$pack/scripts/plans/tiny_text.lua" --db sim.db 2>&1) || fail "sim: $said"
said=$(clean "$pack/tandem" doctor 2>&1)
echo "$said" | grep -q "^ok  *scripts  *$pack/scripts" || fail "doctor: $said"
for step in all smoke check bench bench8b torch torch8b; do
    said=$(clean OUT="$work/out" "$pack/contact" $step 2>&1)
    code=$?
    [ $code -eq 6 ] || fail "$step: code $code, not 6: $said"
    echo "$said" | grep -q 'not run: ' || fail "$step does not say that it did not run: $said"
done
for name in all smoke check bench bench8b; do
    grep -q '"run": false, "why": "[^"]' "$work/out/$name.json" || fail "$name.json does not say why"
    [ -s "$work/out/$name/machine.txt" ] || fail "$name leaves no log"
done
clean "$pack/contact" nothing >said.txt && fail 'a step that does not exist is carried out'
grep -q 'bench8b' said.txt || fail 'it does not name its steps'

# A loader that finds neither Lua, nor gfortran's library, nor the libraries that the latter needs.
real=$(command -v ldd)
cat >"$work/bin/ldd" <<LDD
#!/bin/sh
$real "\$@" | sed -E '\,$pack/,!s#(liblua[^ ]*|libopenblas[^ ]*|libgfortran[^ ]*) => .*#\1 => not found#'
LDD
chmod +x "$work/bin/ldd"
# shellcheck disable=SC2016
said=$(env -i PATH="$work/bin:/usr/bin:/bin" sh -c \
    'here=$1; . "$here/tests/gpu/machine.sh"; echo "$added:$absent:"; ldd "$here/build/tandem"' - "$pack")
for library in liblua libopenblas libgfortran; do
    echo "$said" | head -1 | grep -q "$library" || fail "$library is missing, and is not taken from the pack: $said"
done
echo "$said" | head -1 | grep -q 'libjansson\|libsqlite3' && fail "a library that is there is taken from the pack: $said"
echo "$said" | head -1 | grep -q '::$' || fail "something is still missing: $said"
echo "$said" | grep -q "liblua.* => $pack/lib/" || fail "the loader does not find Lua in the pack: $said"
