#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tail latency of the demo's job, on the system's malloc and on mallow in turn: medians."""

import json
import statistics
import subprocess
import sys

ROUNDS = 5
ROWS = (
    ("half of all requests within", "p50_us"),
    ("99 % within", "p99_us"),
    ("99.9 % within", "p999_us"),
    ("the ten slowest, mean", "slowest_us"),
)


def run(prefix, job):
    output = subprocess.run([*prefix, *job], check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main():
    tool, job = sys.argv[1], sys.argv[2:]
    system, mallow = [], []
    for number in range(ROUNDS):
        print(f"  round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        system.append(run([], job))
        mallow.append(run([tool, "run", "--"], job))
    print(f"  {'a request (processor time)':30} {'system':>12} {'mallow':>12}   ratio")
    for label, key in ROWS:
        before, after = (statistics.median(row[key] for row in rows) for rows in (system, mallow))
        print(f"  {label:30} {before:9.1f} us {after:9.1f} us {after / before:7.2f}")


if __name__ == "__main__":
    main()
