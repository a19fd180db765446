#!/bin/sh
# refuses.sh PROGRAM [ARGUMENT]: with all GPUs hidden, the program starts, says why it does not run,
# and ends with code 6. (check.sh also writes that into its JSON.)
program=$1
shift
case $program in
*.sh) set -- sh "$program" "$@" ;;
*) set -- "$program" "$@" ;;
esac
said=$(CUDA_VISIBLE_DEVICES='' LD_BIND_NOW=1 "$@" 2>&1)
code=$?
echo "$said"
if [ $code -ne 6 ]; then
    echo "code $code, not 6"
    exit 1
fi
case $said in
*'not run: '*) ;;
*)
    echo "it does not say that it did not run"
    exit 1
    ;;
esac
case $program in
*/check.sh)
    grep -q '"run": false, "why": "[^"]' "${3:?}/gpu-check.json" || {
        echo "gpu-check.json does not say why"
        exit 1
    }
    ;;
esac
