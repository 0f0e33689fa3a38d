#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the peers: `bench/peers/build.sh [KEY…]`, or all of them without arguments.
#
# Each KEY has one small file KEY.sh beside this that says what the peer is (title, crate, version),
# and how its own release configuration is built. Sources come from the published crates pinned in
# Cargo.lock and mimalloc3/Cargo.lock (tbb: from its published wheel). Results: build/peers/KEY.so and
# build/peers/peers.json. A peer that cannot be built is reported and left out; the others go on.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${MALLOW_PEERS_OUT:-$root/build/peers}
jobs=${JOBS:-$(nproc)}
work=$out/work
known=(je mi mi2 sn rp tcg tbb hm hml mi-sec sn-chk)

say() { printf 'peers: %s\n' "$*" >&2; }
need() {
    command -v "$1" >/dev/null || { say "$1 is missing: run tools/bootstrap.sh bench"; exit 1; }
}

if [ "${1:-}" = "--help" ] || [ "${1:-}" = "-h" ]; then
    sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    printf 'Known peers: %s\n' "${known[*]}"
    exit 0
fi
only=
if [ "${1:-}" = "--one" ]; then
    only=yes
    shift
fi
for key in "$@"; do
    [[ " ${known[*]} " == *" $key "* ]] || { say "unknown peer '$key'; known: ${known[*]}"; exit 2; }
done
[ $# -gt 0 ] || set -- "${known[@]}"
for tool in cargo gcc g++ make cmake python3; do need "$tool"; done
mkdir -p "$out" "$work"

# crate_dir NAME: the directory cargo unpacked the pinned crate into; fetched if need be.
crate_dir() {
    local manifest=$here/Cargo.toml
    [ "$1" = rustfs-mimalloc-sys ] && manifest=$here/mimalloc3/Cargo.toml
    cargo metadata --quiet --locked --format-version 1 --manifest-path "$manifest" |
        python3 -c '
import json, os, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == sys.argv[1]:
        print(os.path.dirname(package["manifest_path"]))
' "$1"
}

# build_one KEY: builds one peer; writes KEY.so and KEY.json only when all went well. It runs as a
# process of its own (`--one KEY`): bash ignores `set -e` in anything called from an `if`.
build_one() {
    key=$1
    so=$out/$key.so
    dir=$work/$key
    # Set by the peer's file:
    title= crate= version= config= preload=() hardened=false
    build() { :; }
    # shellcheck source=/dev/null
    source "$here/$key.sh"
    stamp=$(cat "$here/$key.sh" "$here"/common.sh "$here"/Cargo.lock "$here"/mimalloc3/Cargo.lock 2>/dev/null | sha256sum)
    if [ -f "$so" ] && [ -f "$out/$key.json" ] && [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
        say "$key: up to date"
        return
    fi
    rm -rf "$dir" "$so" "$out/$key.json" && mkdir -p "$dir"
    src=
    [ -z "$crate" ] || src=$(crate_dir "$crate")
    say "$key: building $title"
    exec 3>&2 >"$dir/log" 2>&1
    trap 'tail -n 15 "$dir/log" >&3; echo "peers: $key: FAILED, see $dir/log" >&3' ERR
    set -E
    build
    trap - ERR
    exec 2>&3
    version=$(version_of)
    [ ${#preload[@]} -gt 0 ] || preload=("$key.so")
    compiler=${compiler:-$(gcc --version | head -n 1)}
    KEY=$key TITLE=$title VERSION=$version CRATE=${package:-$crate} CONFIG=$config COMPILER=$compiler \
        HARDENED=$hardened PRELOAD="${preload[*]}" python3 -c '
import json, os
e = os.environ
print(json.dumps({"key": e["KEY"], "title": e["TITLE"], "version": e["VERSION"],
                  "package": e["CRATE"], "configuration": e["CONFIG"], "compiler": e["COMPILER"],
                  "hardened": e["HARDENED"] == "true", "preload": e["PRELOAD"].split()}))
' >"$out/$key.json"
    printf '%s' "$stamp" >"$dir/stamp"
}

# serves_malloc KEY: a program that asks the loader who owns malloc, and allocates, under the peer.
serves_malloc() {
    local list
    list=$(python3 -c '
import json, sys
print(":".join(sys.argv[2] + "/" + f for f in json.load(open(sys.argv[1]))["preload"]))
' "$out/$1.json" "$out")
    LD_PRELOAD=$list "$work/probe" "$out"
}

source "$here/common.sh"
if [ -n "$only" ]; then
    build_one "$1"
    exit 0
fi
g++ -O1 -std=c++17 -fno-builtin -o "$work/probe" "$here/probe.cc" -ldl -pthread

failed=()
for key in "$@"; do
    if ! "$BASH" "${BASH_SOURCE[0]}" --one "$key"; then
        failed+=("$key")
        continue
    fi
    if ! serves_malloc "$key"; then
        say "$key: FAILED: the library does not serve malloc"
        rm -f "$out/$key.so" "$out/$key.json" "$work/$key/stamp"
        failed+=("$key")
    fi
done

python3 - "$out" <<'PY'
import glob, json, os, sys
rows = [json.load(open(name)) for name in sorted(glob.glob(sys.argv[1] + "/*.json"))
        if os.path.basename(name) != "peers.json"]
with open(sys.argv[1] + "/peers.json", "w") as file:
    json.dump({"peers": rows}, file, indent=1)
    file.write("\n")
PY
say "built: $(cd "$out" && ls ./*.so | sed 's,^\./,,; s,\.so$,,' | tr '\n' ' ')"
if [ ${#failed[@]} -gt 0 ]; then
    say "failed: ${failed[*]}"
    exit 1
fi
