#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many size classes a doubling? (docs/decisions/0007-size-classes.md)

    tools/size_classes.py record          counts the sizes that programs ask for, into build/sizes/
    tools/size_classes.py table           classes, waste, moves for 1, 2, 4 and 8 a doubling
    tools/size_classes.py build           libmallow.so with each, in build/classes/<steps>/
    tools/size_classes.py measure [-n N]  time and peak RSS of these, by mallow-bench, interleaved
    tools/size_classes.py                 all of it

`record` and `measure` want `make bench-programs`. The waste of a size is what its block has beyond
it.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SIZES = BUILD / "sizes"
VARIANTS = BUILD / "classes"
STEPS = (1, 2, 4, 8)
GRANULE, SLAB_MAX = 16, 65536
RECORDED = ("python", "sqlite", "gcc-c", "lua", "redis", "perl", "leveldb", "json", "game")
MEASURED = ("python", "sqlite", "lua", "redis", "perl", "json", "game")


def shipped():
    """The steps a doubling of the library as it is built by default."""
    text = (ROOT / "src/config.h").read_text()
    return 1 << int(re.search(r"#define MALLOW_CLASS_STEP_BITS (\d)U", text).group(1))


def capacity(size, steps):
    """The block size of a request: 16 apart up to 16 * steps, then `steps` a doubling."""
    if size <= GRANULE * steps:
        return max(GRANULE, -(-size // GRANULE) * GRANULE)
    step = (1 << ((size - 1).bit_length() - 1)) // steps
    return -(-size // step) * step


def classes(steps):
    """All block sizes up to the largest that lives in a slab."""
    sizes, size = [], 0
    while size < SLAB_MAX:
        size = capacity(size + 1, steps)
        sizes.append(size)
    return sizes


def worst_waste(steps):
    """The largest share of a block that nothing was asked for, above the part that is 16 apart."""
    sizes = classes(steps)
    pairs = zip(sizes, sizes[1:])
    return max((high - low - 1) / high for low, high in pairs if low >= GRANULE * steps)


def mean_waste(histogram, steps):
    """The share of all block bytes that nothing was asked for."""
    used = sum(size * count for size, count in histogram.items())
    given = sum(capacity(size, steps) * count for size, count in histogram.items())
    return 1 - used / given if given else 0.0


def series_moves(steps, grow, first=32):
    """Of the steps of a block that grows to 64 KiB, the share in which its class is too small."""
    size, moves, count = first, 0, 0
    while (larger := grow(size)) <= SLAB_MAX:
        moves += larger > capacity(size, steps)
        count += 1
        size = larger
    return moves / count


def read_counts(lines):
    """The recorder's lines: the histogram, and (reallocs that grow, moves by steps)."""
    histogram, grows = collections.Counter(), [0] * (1 + len(STEPS))
    for line in lines:
        kind, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if kind == "size":
            histogram[numbers[0]] += numbers[1]
        elif kind == "grows":
            grows = [a + b for a, b in zip(grows, numbers)]
    return histogram, grows


def suite_rows():
    return {row["name"]: row for row in json.loads((ROOT / "bench/suite.json").read_text())}


def record():
    recorder = BUILD / "bench/record_sizes.so"
    if not recorder.exists():
        sys.exit(f"{recorder} is not there: make bench-programs")
    rows = suite_rows()
    for name in RECORDED:
        row, target = rows[name], SIZES / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        setup = row.get("setup")
        if setup and subprocess.run(setup, cwd=ROOT, stdout=subprocess.DEVNULL).returncode != 0:
            print(f"{name}: left out, its setup failed", file=sys.stderr)
            continue
        environment = os.environ | row.get("environment", {})
        # libc too, before the allocator that a program such as redis-server is linked with.
        environment |= {"LD_PRELOAD": f"{recorder} libc.so.6", "SIZES_DIR": str(target)}
        ran = subprocess.run(row["command"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        print(
            f"{name}: status {ran.returncode}, {len(list(target.iterdir()))} processes",
            file=sys.stderr,
        )


def recorded():
    found = {}
    for name in RECORDED:
        lines = [
            line
            for file in sorted((SIZES / name).glob("*.txt"))
            for line in file.read_text().splitlines()
        ]
        histogram, grows = read_counts(lines)
        if histogram:
            found[name] = (histogram, grows)
    return found


def print_table(headings, rows):
    print("| " + " | ".join(map(str, headings)) + " |")
    print("|" + "---|" * len(headings))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def percent(share):
    return f"{100 * share:.1f} %"


def table():
    # Uniform within each doubling, and every doubling weighs the same.
    sizes = range(GRANULE * max(STEPS) + 1, SLAB_MAX + 1)
    uniform = {size: 2.0 ** -(size - 1).bit_length() for size in sizes}
    headings = [
        "classes a doubling",
        *(f"{s}{' (shipped)' if s == shipped() else ''}" for s in STEPS),
    ]
    rows = [
        ["classes up to 64 KiB", *(len(classes(s)) for s in STEPS)],
        ["worst waste of a block", *(percent(worst_waste(s)) for s in STEPS)],
        ["waste, every doubling alike", *(percent(mean_waste(uniform, s)) for s in STEPS)],
        ["moves, growing by 1/8", *(percent(series_moves(s, lambda n: n + n // 8)) for s in STEPS)],
        ["moves, growing by 1/2", *(percent(series_moves(s, lambda n: n + n // 2)) for s in STEPS)],
        [
            "moves, growing by 64 bytes",
            *(percent(series_moves(s, lambda n: n + 64)) for s in STEPS),
        ],
    ]
    print_table(headings, rows)
    programs = recorded()
    if not programs:
        print("\nno recorded sizes in build/sizes: tools/size_classes.py record", file=sys.stderr)
        return
    print("\nWaste over the sizes that programs ask for, up to 64 KiB\n")
    rows = []
    for name, (histogram, _) in programs.items():
        mean = sum(size * count for size, count in histogram.items()) / histogram.total()
        rows.append(
            [
                name,
                f"{histogram.total():,}",
                f"{mean:.0f}",
                *(percent(mean_waste(histogram, s)) for s in STEPS),
            ]
        )
    rows.append(
        [
            "mean",
            "",
            "",
            *(
                percent(statistics.mean(mean_waste(h, s) for h, _ in programs.values()))
                for s in STEPS
            ),
        ]
    )
    print_table(["program", "requests", "mean bytes", *STEPS], rows)
    print("\nreallocs that ask for more, up to 64 KiB: how many do not fit the old block's class\n")
    rows = [
        [name, f"{grows[0]:,}", *(percent(moves / grows[0]) for moves in grows[1:])]
        for name, (_, grows) in programs.items()
        if grows[0]
    ]
    print_table(["program", "growing reallocs", *STEPS], rows)


def build():
    for steps in STEPS:
        target = VARIANTS / str(steps)
        flags = f"-DMALLOW_CLASS_STEP_BITS={steps.bit_length() - 1}U"
        subprocess.run(
            [
                "cmake",
                "-S",
                str(ROOT),
                "-B",
                str(target),
                "-G",
                "Ninja",
                "-DCMAKE_BUILD_TYPE=Release",
                f"-DCMAKE_C_FLAGS={flags}",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(
            ["cmake", "--build", str(target), "--target", "lib"],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def variant_library(steps):
    return VARIANTS / str(steps) / "lib/libmallow.so"


def measure(rounds):
    peers = ",".join(f"steps{s}={variant_library(s)}" for s in STEPS)
    out = BUILD / "bench/results/size-classes.json"
    subprocess.run(
        [
            str(BUILD / "bin/mallow-bench"),
            "--no-mallow",
            "--quiet",
            "-n",
            str(rounds),
            "--only",
            ",".join(MEASURED),
            "--peers",
            peers,
            "--out",
            str(out),
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    print_measured(json.loads(out.read_text()))


def run_figures(run):
    """CPU seconds (what counts for redis is the server's own, its score) and bytes."""
    score = run.get("score")
    seconds = (
        score["value"]
        if score and score["unit"].startswith("s_")
        else (run["user_s"] + run["system_s"])
    )
    return seconds, run["peak_rss_bytes"]


def print_measured(results):
    base_key = f"steps{shipped()}"
    ratios = {measure: collections.defaultdict(list) for measure in ("time", "RSS")}
    rows = []
    for benchmark in results["benchmarks"]:
        runs = {
            s["allocator"]["key"]: [run_figures(r) for r in s["runs"]] for s in benchmark["series"]
        }
        cells = {"time": [], "RSS": []}
        for steps in STEPS:
            for at, measure in enumerate(("time", "RSS")):
                # Paired: round by round, so that a slow minute of the machine drops out.
                pairs = [
                    own[at] / base[at] for own, base in zip(runs[f"steps{steps}"], runs[base_key])
                ]
                middle = statistics.median(pairs)
                ratios[measure][steps].append(middle)
                spread = f" ({min(pairs):.2f} to {max(pairs):.2f})" if measure == "time" else ""
                cells[measure].append(f"{middle:.3f}{spread}")
        rows.append([benchmark["name"], *cells["time"], *cells["RSS"]])
    means = [
        f"{math.exp(statistics.mean(map(math.log, ratios[m][s]))):.3f}"
        for m in ("time", "RSS")
        for s in STEPS
    ]
    rows.append(["geometric mean", *means])
    print(
        f"\nCPU time and peak RSS, ratio to {shipped()} a doubling; "
        "median of the rounds' ratios (least to most)\n"
    )
    print_table(["program", *(f"time, {s}" for s in STEPS), *(f"RSS, {s}" for s in STEPS)], rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("record", "table", "build", "measure"))
    parser.add_argument("-n", "--rounds", type=int, default=5)
    arguments = parser.parse_args()
    parts = {
        "record": record,
        "table": table,
        "build": build,
        "measure": lambda: measure(arguments.rounds),
    }
    for name, part in parts.items():
        if arguments.what in (None, name):
            part()


if __name__ == "__main__":
    main()
