#!/bin/sh
# Compiles a file of kernels (all arguments: the command, with `-o OBJECT`). It keeps the messages
# of ptxas for each kernel (registers, memory, spills) as OBJECT.log for
# tests/cuda/test_resources.c. All other compiler messages are passed on.
object= before=
for word in "$@"; do
    [ "$before" = -o ] && object=$word
    before=$word
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.log"
status=$?
grep -v -E '^ptxas info|^ +(Function properties|[0-9]+ bytes stack frame|Used [0-9]+ registers)|^$' \
    "$object.log" >&2
exit $status
