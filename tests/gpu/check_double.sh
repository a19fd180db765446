#!/bin/sh
# check_double.sh COMMAND FOLDER: runs check.sh with the command itself on the double of CUDA and
# NCCL (the module in FOLDER) instead of a GPU. Whole plans, graphs and ranks must pass; with a
# wrong kernel they must fail.
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/tests" || exit 1
touch "$work/tandem_cuda.so"
printf '#!/bin/sh\nTANDEM_MODULE_DIR=%s exec %s "$@"\n' "$2" "$1" >"$work/tandem"
chmod +x "$work/tandem"
checks() { # CODE PATTERN...
    said=$(sh "$here/check.sh" "$work" 2>&1)
    code=$?
    echo "$said"
    [ $code -eq "$1" ] || { echo "code $code, not $1"; exit 1; }
    shift
    for pattern in "$@"; do
        echo "$said" | grep -qE "$pattern" || { echo "not told: $pattern"; exit 1; }
    done
}
checks 0 '^passed .* graphs or none: the same bits, twice$' '^passed .* one rank: the loss of the CPU$' \
    '^(passed|skipped) .* four ranks on one GPU .NCCL' '^(passed|skipped) .* two ranks on one GPU' \
    '^(passed|skipped) .* four ranks on one GPU, through the host'
if echo "$said" | grep -q 'FAILED\|do not run at once'; then exit 1; fi
TANDEM_DOUBLE='wrong=attention'
export TANDEM_DOUBLE
checks 1 '^passed .* graphs or none: the same bits, twice$' '^FAILED .* one rank: the loss of the CPU' \
    '^(FAILED|skipped) .* four ranks on one GPU .NCCL' '^(FAILED|skipped) .* two ranks on one GPU'
