#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make bench`, `make bench-quick`: the suite, on mallow and on its peers. `make bench-classics`:
# the published tests of others. `make bench-pages`: the user-mode page experiment.
# Results of the full suite and of the pages go where mallow-bench keeps them, bench/results; the
# others' into build/. Further arguments go to mallow-bench: tools/bench.sh bench --only larson -n 5
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-bench}
shift || true
case $what in
bench) selection=() ;;
bench-quick) selection=(--quick --out build/bench/results/bench-quick.json) ;;
bench-classics) selection=(classics) ;;
bench-pages) selection=(pages) ;;
*)
    echo "usage: tools/bench.sh bench|bench-quick|bench-classics|bench-pages [OPTION...]" >&2
    exit 2
    ;;
esac
tools/bootstrap.sh bench || echo "some peers or programs are missing; going on without them" >&2
[ -e build/peers/peers.json ] || echo "note: make peers builds the newest peers, too" >&2
mkdir -p build/bench/results
exec build/bin/mallow-bench "${selection[@]}" "$@"
