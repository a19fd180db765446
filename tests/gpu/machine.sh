# shellcheck shell=sh
# machine.sh: sourced by the scripts of the pack that pack.sh makes; `here` is the pack's folder. Finds
# CUDA, NCCL and cuDNN: those of PyTorch's pip packages, else those of the toolkit. From the pack it
# adds only libraries that this machine lacks.
: "${here:?}"
export TANDEM_SCRIPTS="$here/scripts" TANDEM_MODULE_DIR="$here/build" OPENBLAS_NUM_THREADS=1
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
toolkit=${CUDA_HOME:-/usr/local/cuda}
driver=/usr/local/nvidia # where containers have the driver's programs and libraries
PATH=${PATH:-/usr/bin:/bin}:$toolkit/bin:$toolkit/compute-sanitizer:$driver/bin
export PATH

pip_folders() {
    command -v python3 >/dev/null || return
    python3 - <<'PYTHON'
import glob
import os
import sys
import sysconfig

roots = {sysconfig.get_paths()["purelib"]} | {p for p in sys.path if p.endswith("site-packages")}
print(":".join(f for r in sorted(roots) for f in sorted(glob.glob(os.path.join(r, "nvidia", "*", "lib")))))
PYTHON
}

for folder in "$(pip_folders)" "$toolkit/lib64" "$toolkit/lib" "$driver/lib64"; do
    if [ -n "$folder" ]; then LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"; fi
done
export LD_LIBRARY_PATH

# missing FILE...: prints the libraries that the loader does not find.
missing() {
    for file in "$@"; do ldd "$file" 2>/dev/null; done | awk '/not found/ { print $1 }' | sort -u
}

# A library of the pack may need another one: look again until nothing more is found. Only MPI's
# module may lack its library, because a machine without MPI does not use the module.
added=''
# The command loads OpenBLAS at its first kernel, so ldd does not list it. It counts as missing here.
lacks="$(missing "$here/build/tandem" "$here/build/tandem_cuda.so" "$here"/build/tests/gpu_*) libopenblas.so.0"
while [ -n "$lacks" ]; do
    more=''
    for library in $lacks; do
        case " $added " in *" $library "*) continue ;; esac
        if [ -d "$here/lib/$library" ]; then
            added="$added $library" more="$more $here/lib/$library/$library"
            LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib/$library"
        fi
    done
    # shellcheck disable=SC2086
    lacks=$([ -z "$more" ] || missing $more)
done
# shellcheck disable=SC2034 # for the script that sources this
absent=$(missing "$here/build/tandem" "$here/build/tandem_cuda.so" | tr '\n' ' ')
