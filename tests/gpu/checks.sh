# shellcheck shell=sh
# checks.sh: sourced by check.sh and contact.sh. Runs checks, side by side or alone. Each check gives a
# line, a row of JSON and a log. The script that sources it sets:
#     work   an empty folder; each check runs in a folder of its own in it
#     logs   the folder that receives each check's output
#     limit  seconds for all checks;    most    seconds for one check
#     jobs   the number of checks that may run side by side
#     tandem the command
# It may also set `least`, the seconds that must be left when a check begins.
# A check that was cut short because all time was used up was not run. It did not fail.
: "${work:?}" "${logs:?}" "${limit:?}" "${most:?}" "${jobs:?}"
cannot=77 # exit code of a check that cannot run here; its last line says why
n_checks=0 began=$(date +%s) least=5 places=0
mkdir -p "$logs"

# One line in this pipe for each place that is free.
mkfifo "$work/places" && exec 9<>"$work/places" || exit 1

# at_most N: from now on, at most N checks run side by side.
at_most() {
    while [ $places -lt "$1" ]; do echo >&9 && places=$((places + 1)); done
    while [ $places -gt "$1" ]; do read -r _ <&9 && places=$((places - 1)); done
}
at_most "$jobs"

spare() { echo $((limit - ($(date +%s) - began))); }

# Prints the seconds that a command may take now.
left() {
    now=$(spare)
    if [ "$now" -lt "$most" ]; then echo "$now"; else echo "$most"; fi
}

# limited COMMAND...: ends it, with its children, when the check's time or all time is over.
limited() {
    if [ "$(left)" -lt 1 ]; then return 124; fi
    timeout -k 2 "$(left)" "$@"
}

# report VERDICT SECONDS [WHY]: the line and the row of the check `name` in folder `at`
report() {
    printf '%-7s %4d s  %s%s\n' "$1" "$2" "$name" "${3:+: $3}" >"$at/line"
    told=''
    if [ "$1" = passed ]; then
        sed -n 's/^told: /    /p' "$at/out.txt" >>"$at/line"
        told=$(sed -n 's/["\\]//g; s/^told: \(.*\)/"\1"/p' "$at/out.txt" | paste -sd, -)
    elif [ "$1" = FAILED ]; then
        tail -15 "$at/out.txt" | sed 's/^/    /' >>"$at/line"
    fi
    printf '\n    { "name": "%s", "verdict": "%s", "seconds": %d%s%s }' "$name" "$1" "$2" \
        "${3:+, \"why\": \"$(echo "$3" | sed 's/["\\]//g')\"}" "${told:+, \"told\": [$told]}" >"$at/row"
    echo "$1" >"$at/verdict"
    cat "$at/line"
}

# carry_out COMMAND...: runs the check `name` in folder `at`.
carry_out() {
    start=$(date +%s)
    : >"$at/out.txt"
    if [ "$(spare)" -lt "$least" ]; then
        report skipped 0 'the time is up'
        return
    fi
    (cd "$at" && "$@") >"$at/out.txt" 2>&1 9<&-
    code=$? seconds=$(($(date +%s) - start))
    cp "$at/out.txt" "$logs/$(echo "$name" | tr -c 'A-Za-z0-9\n' _).txt"
    case $code in
    0) report passed $seconds ;;
    "$cannot") report skipped $seconds "$(tail -1 "$at/out.txt")" ;;
    124 | 137)
        if [ "$(spare)" -lt 3 ]; then
            report skipped $seconds 'not run: the time was up before it had ended'
        else
            report FAILED $seconds 'not done in time'
        fi
        ;;
    *) report FAILED $seconds "code $code" ;;
    esac
}

next_folder() { # NAME
    name=$1 n_checks=$((n_checks + 1))
    at=$work/$(printf '%03d' $n_checks)
    mkdir "$at"
}

skip() { # NAME WHY
    next_folder "$1"
    : >"$at/out.txt"
    report skipped 0 "$2"
}

# beside NAME COMMAND...: starts a check as soon as a place is free; `together` waits for all of them.
beside() {
    next_folder "$1"
    shift
    read -r _ <&9
    {
        carry_out "$@"
        echo >&9
    } &
}
together() { wait; }

# alone NAME COMMAND...: runs a check while no other check runs.
alone() {
    together
    next_folder "$1"
    shift
    carry_out "$@"
}

count() { cat "$work"/*/verdict 2>/dev/null | grep -cx "$1"; }

# document SCHEMA JSON: writes what the checks have given so far.
document() {
    passed=$(count passed) failures=$(count FAILED) skipped=$(count skipped)
    total=$(($(date +%s) - began))
    {
        printf '{ "schema": "%s", "run": true, "passed": %d, "failures": %d, "skipped": %d, "seconds": %d, "checks": [' \
            "$1" "$passed" "$failures" "$skipped" $total
        comma=''
        for row in "$work"/*/row; do
            if [ -f "$row" ]; then printf '%s' "$comma" && cat "$row" && comma=,; fi
        done
        printf '\n] }\n'
    } >"$2"
}

# finish SCHEMA JSON: writes the document. Returns false if a check failed, or if none passed: then
# nothing was shown to work.
finish() {
    together
    document "$1" "$2"
    echo "$passed passed, $failures failed, $skipped skipped, $total s, $2"
    [ "$failures" -eq 0 ] && [ "$passed" -gt 0 ]
}

# refuse SCHEMA JSON WHY: reports that nothing can be checked here.
refuse() {
    tool=${1#tandem.}
    echo "${tool%/*}: not run: $3" >&2
    printf '{ "schema": "%s", "run": false, "why": "%s" }\n' "$1" "$3" >"$2"
    exit 6
}

# needs_gpu BUILD SCHEMA JSON: refuses where no GPU is found; else prints a line for each.
needs_gpu() {
    [ -f "$1/tandem_cuda.so" ] ||
        refuse "$2" "$3" "$1 has no tandem_cuda.so: build where nvcc, cuBLAS and NCCL are installed"
    "$1/tandem" doctor >"$work/doctor.txt" 2>&1
    cp "$work/doctor.txt" "$logs/doctor.txt"
    grep -qE '^ok +gpu [0-9]' "$work/doctor.txt" ||
        refuse "$2" "$3" "$(sed -nE 's/^(missing|note) +(gpu|driver|cuda) +//p' "$work/doctor.txt" | tail -1)"
    grep -E ' (gpu [0-9]+|driver|nccl|cuda) ' "$work/doctor.txt"
}

# trained NAME PLAN ARGUMENT...: trains a plan with `tandem run --json` and stores the loss of the last
# steps in the file NAME.
trained() {
    to=$1
    shift
    limited "${tandem:?}" run "$@" --json --quiet >"$to.json" || {
        code=$?
        grep '"rule"\|"text"' "$to.json" | tail -6
        return $code
    }
    sed -nE 's/.*"last_loss": ([-0-9.e+]+).*/\1/p' "$to.json" >"$to"
    if grep -q '"plain_products": [1-9]' "$to.json"; then # cublasLt refused them
        grep -o 'the plain kernel computes this product: [^"]*' "$to.json"
        return 1
    fi
    [ -s "$to" ]
}

near() { # A B: within 1e-3 of each other
    awk -v a="$(cat "$1")" -v b="$(cat "$2")" 'BEGIN { d = a > b ? a - b : b - a; print a, b
        exit !(d <= 1e-3 * b) }'
}

# over_tcp N PORT COMMAND...: starts N ranks on this machine that meet without MPI, as torchrun
# does.
over_tcp() {
    n=$1 port=$2 rank=0 fine=0
    shift 2
    : >pids
    while [ $rank -lt "$n" ]; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 2 "$(left)" "$@" >"rank-$rank.txt" 2>&1 &
        echo $! >>pids
        rank=$((rank + 1))
    done
    while read -r pid; do wait "$pid" || fine=$?; done <pids
    tail -n 6 rank-*.txt
    return $fine
}
