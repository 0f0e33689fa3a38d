#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""From real programs to pools that serve them: records jobs of bench/real, derives a pool of each
by `mallow pool plan --from`, replays the trace on that pool, and prints a table.

usage: tools/pool_jobs.py [--quick] [JOB...]     sqlite, redis, python; after `make bench-programs`

Status 1 if a pool refused anything at its stated size. A program that is missing is skipped.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MALLOW = ROOT / "build/bin/mallow"
FOLDER = ROOT / "build/bench/pools"
BUDGETS = ("90 %", "75 %", "50 %")


def jobs(quick):
    """{name: (program that must be there, command, variables)}."""
    script = FOLDER / "sqlite.sql"
    requests = "requests=5k" if quick else "requests=30k"
    return {
        "sqlite": ("sqlite3", ["sqlite3", ":memory:", f".read {script}"], {}),
        "redis": ("redis-server", [str(ROOT / "build/bench/redis_drive"), requests], {}),
        "python": (
            "/usr/bin/python3",
            ["/usr/bin/python3", "-s", str(ROOT / "bench/real/python_job.py")],
            {"PYTHONMALLOC": "malloc"},
        ),
    }


def run(command, variables=None, statuses=(0,)):
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, **(variables or {})}
    )
    if done.returncode not in statuses:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def figure(pattern, text):
    match = re.search(pattern, text, re.M)
    if match is None:
        sys.exit(f"no '{pattern}' in:\n{text}")
    return match[1]


def job(name, command, variables):
    """One row of the table, and the refusals of the replay."""
    for old in FOLDER.glob(f"{name}.*.trace"):
        old.unlink()
    run([MALLOW, "record", "-o", FOLDER / name, "--", *command], variables)
    traces = FOLDER.glob(f"{name}.*.trace")
    trace = max(traces, key=lambda path: path.stat().st_size)
    config = FOLDER / f"{name}.conf"
    plan = run([MALLOW, "pool", "plan", "--from", trace, "--out", config, "--no-snippet"]).stdout
    replay = run([MALLOW, "pool", "replay", "--pool", config, trace], statuses=(0, 1)).stdout
    refused = figure(r"^[\d,]+ requests, ([\d,]+) refused", replay)
    live = int(figure(r"at most ([\d,]+) bytes live", plan).replace(",", ""))
    pool = int(figure(r"^pool +([\d,]+) bytes", plan).replace(",", ""))
    row = [
        name,
        figure(r"^([\d,]+) requests", plan),
        f"{live / 2**20:.1f}",
        figure(r"^(\d+) \*", plan),
        f"{pool / 2**20:.1f}",
        f"{pool / live:.2f}",
        refused,
        *(figure(rf"^{budget} .* ([\d.]+)$", plan) for budget in BUDGETS),
    ]
    return row, int(refused.replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of redis, and no python")
    parser.add_argument("job", nargs="*", choices=["sqlite", "redis", "python", []])
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    run([sys.executable, ROOT / "bench/real/prepare.py", "sqlite", FOLDER])
    head = ["job", "requests", "live MiB", "classes", "pool MiB", "pool/live", "refused"]
    rows, failed = [head + [f"at {budget}, %" for budget in BUDGETS]], 0
    for name, (program, command, variables) in jobs(arguments.quick).items():
        left_out = arguments.quick and name == "python"
        if name not in arguments.job and (arguments.job or left_out):
            continue
        if shutil.which(program) is None or shutil.which(command[0]) is None:
            print(f"skip: {name}: {program} or {command[0]} is not there", file=sys.stderr)
            continue
        row, refused = job(name, command, variables)
        rows.append(row)
        failed += refused
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) + len(BUDGETS))]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))
    return 1 if failed or len(rows) == 1 else 0


if __name__ == "__main__":
    sys.exit(main())
