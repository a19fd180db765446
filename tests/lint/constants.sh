#!/bin/sh
# Each constant of the library's tables names its kind, and the page that lists them is up to date.
command -v python3 >/dev/null || exit 0
cd "${1:-.}" && python3 tests/bench/constants.py --check
