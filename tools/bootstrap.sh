#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the Debian packages that a part of the project needs: tools/bootstrap.sh GROUP...
# As root it installs what is missing; otherwise it prints, in one line, the command that would.
# Exit status: 0 all there, 1 something is missing.
set -euo pipefail

# What each group needs. Building the library takes gcc, make, cmake, ninja-build and python3 alone.
declare -A packages=(
    [test]="gcc g++ libcmocka-dev valgrind strace binutils git"
    [override]="python3 libpython3.11-testsuite sqlite3 redis-server redis-tools gcc g++ make git
        nodejs openjdk-17-jdk-headless perl lua5.4 z3 ripgrep fd-find postgresql nginx bash tar
        xz-utils zstd bzip2 openssl cmake ninja-build googletest binutils-source ruby gawk
        libjemalloc2 php-cli php-xml php-sqlite3 php-mbstring"
    [bench]="gcc g++ git redis-server redis-tools lua5.4 z3 sqlite3 python3 perl nodejs
        libleveldb1d librocksdb7.8 libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 libtbbmalloc2"
    [arm64]="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
    [clang]="clang-19 libclang-rt-19-dev"
)
# Taken apart into build/arm64-packages, since they are of another architecture than this system.
arm64_foreign="libcmocka0 libcmocka-dev"

root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    echo "usage: tools/bootstrap.sh test|override|bench|arm64|clang|all ..." >&2
    exit 2
}

installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=900 -qq "$@" </dev/null >/dev/null
}

# The packages that the system's index does not hold are named, not installed, and count as missing.
install_packages() {
    local missing=() package
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "mallow: packages are missing; run: sudo apt-get install -y ${missing[*]}" >&2
        return 1
    fi
    echo "mallow: installing ${missing[*]}"
    apt install -y --no-install-recommends "${missing[@]}" 2>/dev/null && return 0
    apt update && apt install -y --no-install-recommends "${missing[@]}"
}

# Own lists and state, so that the system's set of architectures stays as it is.
unpack_arm64() {
    local target=$root/build/arm64-packages state=$root/build/arm64-apt
    [ -e "$target/usr/include/cmocka.h" ] && return 0
    mkdir -p "$target" "$state/lists/partial" "$state/archives/partial"
    local options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
        -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state")
    apt-get "${options[@]}" -qq update >/dev/null
    # shellcheck disable=SC2086
    (cd "$state" && apt-get "${options[@]}" -qq download $arm64_foreign >/dev/null)
    local archive
    for archive in "$state"/*.deb; do
        dpkg-deb -x "$archive" "$target"
    done
}

[ $# -gt 0 ] || usage
if ! command -v apt-get >/dev/null; then
    echo "mallow: no apt-get here; install what the lists in tools/bootstrap.sh name" >&2
    exit 1
fi
[ "$*" = all ] && set -- test override bench arm64 clang
status=0
for group in "$@"; do
    [ -n "${packages[$group]:-}" ] || usage
    # shellcheck disable=SC2086
    install_packages ${packages[$group]} || status=1
    if [ "$group" = arm64 ]; then
        unpack_arm64 || status=1
    fi
done
exit $status
