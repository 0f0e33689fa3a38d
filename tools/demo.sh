#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make demo`: a real program (CPython with SQLite and JSON, two threads) on mallow, checked to be
# active, then compared with the system's malloc in time, memory and tail latency.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=build/bin/mallow
if [ ! -x "$tool" ]; then
    echo "make demo needs the tool, which needs cargo: see https://rustup.rs" >&2
    exit 1
fi
# The interpreter itself: a launcher script before it would be measured too.
python=$(python3 -c 'import sys; print(sys.executable)')
job=("$python" tools/demo_job.py)

echo "1. Is mallow active in $python?"
"$tool" check -- "$python" -c 'import sqlite3, json'
echo
echo "2. Time and memory: tools/demo_job.py, a document service in Python and SQLite"
"$tool" compare --with glibc -n 5 --out build/demo.html -- "${job[@]}"
echo
echo "3. Tail latency: the same service, request by request"
"$python" tools/demo_latency.py "$tool" "${job[@]}"
echo
echo "Pictures of step 2: build/demo.html. The same for your own program:"
echo "    build/bin/mallow compare --with glibc -- YOUR-PROGRAM ARGUMENTS"
