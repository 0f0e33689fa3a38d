#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What promotion to huge pages is worth, and what it costs the calls: `make bench-huge`.

usage: tools/huge_pages.py [--rounds N] [--quick] [--only reads|tail]

reads   build/bench/ring: random reads of 256 MiB of dense blocks, after a rest
tail    build/bench/latency, mode `mixed`: a million live blocks, replaced at random; the tail of
        malloc while huge pages are being made

After `make bench-programs`. Each with promotion on, with MALLOW_HUGE_PAGES=0, and with
prctl(PR_SET_THP_DISABLE), in turn within every round, so that what is compared ran within the same
minutes. The system's setting is printed; to see `always`, as root, and back afterwards:

    echo always > /sys/kernel/mm/transparent_hugepage/enabled

Status 1 if a program fails. Not rows of the suite: what is measured is one mechanism, not an
allocator, after a rest of many seconds; the published means are without it.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build/lib/libmallow.so"
SETTING = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
PR_SET_THP_DISABLE = 41

# name: (value of MALLOW_HUGE_PAGES, whether the kernel is told to make none)
WAYS = {"on": ("1", False), "off": ("0", False), "disabled": ("1", True)}


def disable():
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def rollup(process):
    """(RSS, huge) of a process in MiB; zeros when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0, 0
    found = re.findall(r"^(?:Rss|AnonHugePages): +(\d+)", text, re.M)
    return tuple(int(value) // 1024 for value in found) if len(found) == 2 else (0, 0)


def run(command, way, library):
    """Output, and the most RSS and huge pages seen."""
    value, off = WAYS[way]
    child = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(library.resolve()), "MALLOW_HUGE_PAGES": value},
        preexec_fn=disable if off else None,
    )
    most = [0, 0]
    ended = threading.Event()

    def watch():
        while not ended.is_set():
            most[:] = (max(a, b) for a, b in zip(most, rollup(child.pid)))
            time.sleep(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, error = child.communicate()
    ended.set()
    watcher.join()
    return out, error, child.returncode, most


def reads(way, arguments):
    rest = 6000 if arguments.quick else 12000
    command = [ROOT / "build/bench/ring", f"rest={rest}", "walks=10"]
    out, error, status, most = run(command, way, arguments.library)
    score = re.search(r"score ([\d.]+)", out)
    if status != 0 or score is None:
        sys.exit(f"ring: status {status}: {error}")
    return {"ns a read": float(score[1]), "RSS, MiB": most[0], "huge, MiB": most[1]}


def tail(way, arguments):
    steps = "10m" if arguments.quick else "60m"
    command = [
        ROOT / "build/bench/latency",
        *(f"mixed={steps}", "live=1000000", "pin=9998", "fifo=0", "json=1"),
        *("hot=0", "single=0", "churn=0", "pipeline=0", "remote=0", "thread_steps=0"),
        *("order=1", "memory=1048576", "starts=1"),  # as little as it takes
    ]
    out, error, _, most = run(command, way, arguments.library)
    for line in out.splitlines():
        if not line.startswith("{"):
            continue  # the gate's
        row = json.loads(line)
        if (row.get("mode"), row.get("subject"), row.get("call")) == ("mixed", "malloc", "malloc"):
            millions = row["count"] / 1e6
            return {
                "P99.999, us": row["quantiles"][5] / 1000,
                "machine's, us": row["machine"][5] / 1000,
                "above 100 us, ppm": row["ppm"][3],
                "waits, ppm": row["waits"] / millions,
                "RSS, MiB": most[0],
                "huge, MiB": most[1],
            }
    sys.exit(f"latency: no result: {error}")


def table(title, results):
    """Median, and least to largest, of each figure."""
    names = list(next(iter(results.values()))[0])
    print(f"\n{title}\n\n| promotion | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for way, rows in results.items():
        cells = []
        for name in names:
            values = [row[name] for row in rows]
            middle = statistics.median(values)
            cells.append(f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})")
        print(f"| {way} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("reads", "tail"))
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY)
    arguments = parser.parse_args()
    setting = SETTING.read_text().strip() if SETTING.exists() else "none"
    load = os.getloadavg()[0]
    print(f"transparent_hugepage/enabled: {setting}; {arguments.rounds} rounds; load {load:.1f}")
    parts = (("Random reads of 256 MiB", reads), ("malloc while huge pages are made", tail))
    for title, measure in parts:
        if arguments.only not in (None, measure.__name__):
            continue
        results = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                results[way].append(measure(way, arguments))
        table(title, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
