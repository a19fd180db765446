#!/bin/sh
# bare.sh MODULE CMAKE: checks a machine that has only a driver, a toolkit and PyTorch. The CUDA
# module names the folders of its libraries; NCCL is found as pip installs it; gpu-check, gpu-bench
# and gpu-pack install nothing.
module=${1:?the CUDA module} cmake=${2:?the command cmake}
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

path=$(readelf -d "$module" | sed -n 's/.*(RUNPATH).*\[\(.*\)\].*/\1/p')
for name in libcudart libcublasLt libnccl; do
    needed=$(readelf -d "$module" | sed -n "s/.*(NEEDED).*\\[\\($name\\.so[.0-9]*\\)\\].*/\\1/p")
    [ -n "$needed" ] || { echo "$module does not need $name"; exit 1; }
    found=''
    for folder in $(echo "$path" | tr ':' ' '); do
        if [ -e "$folder/$needed" ]; then found=$folder; fi
    done
    [ -n "$found" ] || { echo "$needed lies in no folder of the module's RUNPATH: $path"; exit 1; }
done

# A Python whose packages hold NCCL as pip lays it out.
mkdir -p "$work/bin" "$work/packages/nvidia/nccl/lib" "$work/packages/nvidia/nccl/include" || exit 1
touch "$work/packages/nvidia/nccl/lib/libnccl.so.2"
printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n' \
    >"$work/packages/nvidia/nccl/include/nccl.h"
printf '#!/bin/sh\necho %s\n' "$work/packages" >"$work/bin/python3"
chmod +x "$work/bin/python3"
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(bare LANGUAGES NONE)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
set(NCCL_PYTHON $work/bin/python3)
list(APPEND CMAKE_MODULE_PATH $source/cmake)
find_package(NCCL REQUIRED)
message(STATUS "it is \${NCCL_LIBRARY}, \${NCCL_VERSION}")
END
said=$("$cmake" -S "$work" -B "$work/build" 2>&1)
case $said in
*"it is $work/packages/nvidia/nccl/lib/libnccl.so.2, 2.28.9"*) ;;
*) echo "pip's NCCL is not found: $said" && exit 1 ;;
esac

for target in gpu-check gpu-bench gpu-pack; do
    commands=$(make -n -C "$source" "$target" 2>&1) || { echo "$commands"; exit 1; }
    if echo "$commands" | grep -E 'deps\.sh|apt'; then
        echo "make $target installs packages"
        exit 1
    fi
done
