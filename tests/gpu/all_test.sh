#!/bin/sh
# all_test.sh COMMAND FOLDER: tries the step `all` of contact.sh. First with made-up programs: parts that
# fail, hang, or are too many for the time never end the others. Then with the command itself on the
# double of CUDA and NCCL (the module in FOLDER): the parts that run plans must pass.
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$@"
    exit 1
}
pack=$work/pack
mkdir -p "$pack/build/tests" "$pack/tests/gpu" "$pack/tests/bench" "$pack/docs/explanation" "$work/bin" || exit 1
cp "$here/contact.sh" "$pack/contact"
cp "$here/all.sh" "$here/checks.sh" "$here/machine.sh" "$here/ring.lua" "$pack/tests/gpu/"
cp -R "$here/../../scripts" "$pack/scripts"
cp "$here/../../docs/explanation/accuracy.md" "$pack/docs/explanation/"
program() { # FILE TEXT
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
touch "$pack/build/tandem_cuda.so"
# shellcheck disable=SC2016
program "$pack/build/tandem" 'case $1 in doctor) echo "ok gpu 0"; exit ;; compare) echo table; exit ;; esac
echo "{ \"last_loss\": 2.5 }"'
program "$pack/build/tests/gpu_bench_rows" 'echo "a row: 5 us"; sleep 600'
program "$pack/build/tests/gpu_bench_launches" 'echo "a launch: 2 us"'
program "$pack/build/tests/gpu_bench_attention" 'echo "a shape: 5 ms"; exit 3'
program "$pack/build/tests/gpu_test_fine" '[ "$TANDEM_FEW_CASES" = 1 ]'
program "$pack/build/tests/gpu_test_broken" 'echo wrong; exit 3'
program "$pack/build/tests/gpu_test_backend_plans" '[ "$TANDEM_PART" != 3/8 ]'
program "$pack/build/tests/gpu_test_backend_rounding" 'exit 0'
# This python3 takes the place of the program that measures steps.
program "$work/bin/python3" 'case $* in *gpu_bench.py*--limit*) echo "not measured  x"; echo "steps of $*" ;; esac'
program "$work/bin/nvidia-smi" 'echo "1980 MHz"; case $* in *-lms*) sleep 600 ;; esac'

all() { # SECONDS PARTS
    said=$(PATH=$work/bin:$PATH OUT=$work/out TANDEM_SECONDS=$1 PARTS=$2 TANDEM_CHECK_JOBS=8 \
        sh "$pack/contact" all 2>&1)
    code=$?
    echo "$said"
}
wants() {
    for pattern in "$@"; do echo "$said" | grep -qE "$pattern" || fail "not told: $pattern"; done
}
sed -i 's/^part rows 10 60 /part rows 10 2 /' "$pack/tests/gpu/all.sh"
all 200 ''
[ $code -eq 1 ] || fail "code $code"
tar -tzf "$work/out.tar.gz" | grep -q '^out/all/rows.txt$' || fail 'no archive'
wants '^FAILED .* rows: not done in time' '^    told: a row: 5 us' '^FAILED .* attention: code 3' '^passed .* test_fine$' \
    '^FAILED .* test_broken: code 3' '^passed .* gpt2_1_5b$' '^    steps of .*--ours .*gpt2_1_5b$' '^passed .* torch_llama_8b$' \
    '^passed .* plans8$' '^FAILED .* plans3: code 1' '^passed .* ring$' '^all: [0-9]+ passed, 4 failed, '
echo "$said" | grep -q 'not measured\|left for' && fail 'the report has too many lines'
grep -q MHz "$work/out/all/gpt2_124m-clock.csv" && [ -s "$work/out/all/gpt2_124m-kernels.txt" ] || fail 'no logs'
grep -q '"failures": 4, ' "$work/out/all.json" || fail 'wrong JSON'

# Only the named parts run; parts that need more time than there is are left.
all 55 'attention plans1 llama_8b gpt2_124m'
wants '^all: [0-9] passed, 1 failed, ' '^passed .* (gpt2_124m|plans1)$'
echo "$said" | grep -q ' test_fine' && fail 'a part that was not named is carried out'
all 30 'plans1 ring llama_8b'
wants '^skipped .* plans1: the time is up$' '^passed .* ring$' "^left for another call: PARTS='plans1 llama_8b' contact all$"
all 1 ''
wants '^all: 0 passed, 0 failed, '

# The results of each call are kept. The archive has what a call gave before it was killed.
[ -s "$work/out/all-3.json" ] && grep -q '"failures": 4, ' "$work/out/all-1.json" || fail 'an earlier result is lost'
grep -q '^FAILED .* test_broken' "$work/out/all-1.txt" || fail 'the report is lost'
program "$pack/build/tests/gpu_bench_rows" 'echo "a row: 5 us"'
program "$pack/build/tests/gpu_bench_attention" 'sleep 8'
ARCHIVE=$work/kept.tar.gz PATH=$work/bin:$PATH timeout -s KILL 4 sh "$pack/contact" all "$work/killed" >killed.txt 2>&1
tar -C "$work/bin" -xzf "$work/kept.tar.gz" || fail 'no archive of a call that was killed'
grep -q '^passed .* rows$' "$work/bin/killed/all.txt" || fail 'a part that had ended is not in the archive'
grep -q '"name": "rows", "verdict": "passed"' "$work/bin/killed/all.json" || fail 'nor in its JSON'

# Whole plans on the double.
[ -n "$2" ] || exit 0
ln -sf "$2/tandem_cuda.so" "$pack/build/tandem_cuda.so"
program "$pack/build/tandem" "exec $1 \"\$@\""
export TANDEM_SLOWER=8
all 500 'ring ranks4 graph_none graph_cut graph_whole'
[ $code -eq 0 ] || fail "code $code"
wants '^all: 5 passed, 0 failed, 0 skipped, '
