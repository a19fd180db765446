#!/bin/sh
# Shows that a slow input fails: in the replay of a corpus, and in run.sh. limits.sh PROGRAM, which is
# slow_target with the replay. Quick inputs must pass.
set -u
program=$1
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# fails WHAT: reports a wrong answer
fails() {
    echo "$1:"
    cat "$work/said"
    failed=1
}

for whose in own child; do
    mkdir "$work/$whose-quick" "$work/$whose-slow"
    echo "$whose 0.1" >"$work/$whose-quick/input"
    echo "$whose 0.6" >"$work/$whose-slow/input"
    "$program" "$work/$whose-quick" >"$work/said" 2>&1 || fails "a quick input ($whose) fails"
    "$program" "$work/$whose-slow" >"$work/said" 2>&1 && fails "a slow input ($whose) passes"
    grep -q "$whose-slow/input takes more than 0.5 s of processor time" "$work/said" ||
        fails "the slow input ($whose) is not named"
done

# Targets in place of those of libFuzzer: the first run reports an input as slow. If that input is
# tried alone, one target needs no time, and the other never ends.
mkdir -p "$work/build/tests/fuzz"
for name in quick slow; do
    cat >"$work/build/tests/fuzz/fuzz_$name" <<'TARGET'
#!/bin/sh
for word in "$@"; do
    case $word in
    -artifact_prefix=*) echo input >"${word#*=}slow-unit-1" ;;
    */quick-slow-unit-1) exit 0 ;;
    */slow-slow-unit-1) while :; do :; done ;;
    esac
done
echo "#1 cov: 1"
TARGET
    chmod +x "$work/build/tests/fuzz/fuzz_$name"
done
sh "$here/run.sh" "$work/build" 1 >"$work/said" 2>&1 && fails "run.sh passes with a slow input"
grep -q '^quick .* passed$' "$work/said" || fails "run.sh: a quick input does not pass"
grep -q '^slow .* FAILED$' "$work/said" || fails "run.sh: a slow input does not fail"
grep -q 'slow-slow-unit-1 takes more than 2 s of processor time' "$work/said" ||
    fails "run.sh does not name the slow input"
exit $failed
