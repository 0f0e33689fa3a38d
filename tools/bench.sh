#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make bench`, `make bench-quick`, `make bench-classics`: the suite, on mallow and on its peers.
# The full run's results go where mallow-bench keeps them, bench/results; the others' into build/.
# Arguments after the first go to mallow-bench: tools/bench.sh bench --only larson -n 5
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-bench}
shift || true
results=build/bench/results/$what.json
case $what in
bench) selection=() ;;
bench-quick) selection=(--quick --out "$results") ;;
bench-classics) selection=(--kind classic --out "$results") ;;
*)
    echo "usage: tools/bench.sh bench|bench-quick|bench-classics [OPTION...]" >&2
    exit 2
    ;;
esac
tools/bootstrap.sh bench || echo "some peers or programs are missing; going on without them" >&2
[ -e build/peers/peers.json ] || echo "note: make peers builds the newest peers, too" >&2
mkdir -p build/bench/results
build/bin/mallow-bench "${selection[@]}" "$@"
if [ "$what" = bench-classics ]; then
    bench/classics/show.sh # once more on mallow, with the published figures beside ours
fi
