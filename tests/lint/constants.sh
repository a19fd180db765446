#!/bin/sh
# Checks that each constant of the library's tables names its kind, and that the page of constants
# is up to date.
command -v python3 >/dev/null || exit 0
cd "${1:-.}" && python3 tests/bench/constants.py --check
