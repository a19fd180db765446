#!/bin/sh
# command.sh: the program `tandem` of the pack that pack.sh makes. It finds CUDA and the pack's own
# libraries, and runs the command.
here=$(dirname "$(realpath "$0")")
# shellcheck source=SCRIPTDIR/machine.sh
. "$here/tests/gpu/machine.sh"
exec "$here/build/tandem" "$@"
