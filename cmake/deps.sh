#!/bin/sh
# The only list of the Debian packages that Tandem needs. Installs those that are missing.
#     deps.sh build | test | bench | arm    test and bench include build; arm: for make arm alone
# a|b: either package will do; the first one is installed.
set -eu

packages() {
    cat <<'LIST'
build gcc
build libc6-dev
build cmake
build ninja-build
build pkg-config
build liblua5.4-dev
build libsqlite3-dev
build libjansson-dev
build libxxhash-dev
build zlib1g-dev
build libopenblas-serial-dev|libopenblas-dev
build libopenmpi-dev
build openmpi-bin
build libmpich-dev
build mpich
test binutils
test clang
test clang-format
test libcmocka-dev
bench valgrind
arm gcc-aarch64-linux-gnu
arm qemu-user
arm liblua5.4-dev:arm64
arm libsqlite3-dev:arm64
arm libjansson-dev:arm64
arm libxxhash-dev:arm64
arm zlib1g-dev:arm64
arm libopenblas-serial-dev:arm64|libopenblas-dev:arm64
arm libcmocka-dev:arm64
LIST
}

purpose=${1:-build}
case $purpose in
build) groups='build' ;;
test) groups='build test' ;;
bench) groups='build test bench' ;;
arm) groups='arm' ;;
*)
    echo "usage: deps.sh build | test | bench | arm" >&2
    exit 2
    ;;
esac

wanted=$(packages | while read -r group package; do
    case " $groups " in *" $group "*) echo "$package" ;; esac
done)

if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: this is not a Debian system. Install these packages, given by their names in Debian:" >&2
    echo $wanted >&2
    exit 0
fi

# A package of another architecture does not count, unless it is asked for: libc6:arm64.
is_installed() {
    case $1 in *:*) of=${1#*:} ;; *) of=$native ;; esac
    dpkg-query -W -f='${Architecture} ${Status}\n' "$1" 2>/dev/null |
        grep -Eqx "($of|all) install ok installed"
}
native=$(dpkg --print-architecture)

missing=''
for choice in $wanted; do
    found=''
    for package in $(echo "$choice" | tr '|' ' '); do
        if is_installed "$package"; then found=yes; fi
    done
    if [ -z "$found" ]; then missing="$missing ${choice%%|*}"; fi
done
if [ -z "$missing" ]; then exit 0; fi

run=''
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "deps: these packages are missing, and only root can install them:" >&2
        echo "    apt-get install$missing" >&2
        exit 1
    fi
    run='sudo'
fi
echo "deps: installing$missing" >&2
apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0"
case $missing in *:arm64*) $run dpkg --add-architecture arm64 ;; esac
$run env DEBIAN_FRONTEND=noninteractive $apt update >&2
$run env DEBIAN_FRONTEND=noninteractive $apt install -y --no-install-recommends $missing >&2 </dev/null
