#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make bench`, `make bench-quick`: the suite, on mallow and on its peers. `make bench-classics`:
# the published tests of others. `make bench-pages`: the user-mode page experiment. `make
# bench-dispatch`: the policies of <mallow/dispatch.h> in one simulation. `make bench-latency`:
# single calls to the worst one (an hour); `make bench-latency-quick`: some minutes. `make
# bench-long`: a server for 20 minutes, under all of them at once: RSS over time.
# Results of the full suite, the pages, the latency, the dispatch and the long run go where
# mallow-bench keeps them, in bench/results; the others' into build/. The full latency run and the
# long one draw docs/pictures/latency.svg and long-run.svg, too. `make bench-huge`: what huge pages
# are worth and cost; a table, no rows of the suite.
# Further arguments go to mallow-bench: tools/bench.sh bench --only larson -n 5
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-bench}
shift || true
case $what in
bench) selection=() ;;
bench-quick) selection=(--quick --out build/bench/results/bench-quick.json) ;;
bench-classics) selection=(classics) ;;
bench-pages) selection=(pages) ;;
bench-dispatch) exec build/bin/mallow-bench dispatch "$@" ;;
bench-latency) selection=(latency --picture docs/pictures/latency.svg) ;;
bench-huge) exec tools/huge_pages.py "$@" ;;
bench-long) selection=(long-run --picture docs/pictures/long-run.svg) ;;
bench-latency-quick) selection=(latency --quick --out build/bench/results/latency-quick.json) ;;
*)
    names="bench|bench-quick|bench-classics|bench-pages|bench-dispatch|bench-latency"
    echo "usage: tools/bench.sh $names|bench-latency-quick|bench-long|bench-huge [OPTION...]" >&2
    exit 2
    ;;
esac
tools/bootstrap.sh bench || echo "some peers or programs are missing; going on without them" >&2
[ -e build/peers/peers.json ] || echo "note: make peers builds the newest peers, too" >&2
mkdir -p build/bench/results
exec build/bin/mallow-bench "${selection[@]}" "$@"
