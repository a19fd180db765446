#!/bin/sh
# arm.sh OURS THEIRS PLAN FOLDER: both commands plan and simulate PLAN without an error, and their
# documents are the same bytes. FOLDER keeps the documents.
ours=${1:?the command of this machine} theirs=${2:?the emulated command}
plan=${3:?a plan} folder=${4:?a folder to write in}
cd "$(dirname "$0")/../.." && mkdir -p "$folder" || exit 1
for verb in check sim; do
    "$ours" $verb "$plan" --json --db none >"$folder/$verb.ours" || exit 1
    "$theirs" $verb "$plan" --json --db none >"$folder/$verb.theirs" || exit 1
    if ! cmp "$folder/$verb.ours" "$folder/$verb.theirs"; then
        diff "$folder/$verb.ours" "$folder/$verb.theirs" | head -6
        exit 1
    fi
done
