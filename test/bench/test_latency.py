#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The latency program, tiny counts: what it prints is whole; what it must refuse it refuses."""

import json
import os
import re
import subprocess
import unittest

PROGRAM = os.environ["TEST_LATENCY"]
MALLOW = os.environ["TEST_LIBRARY"]
BROKEN = os.environ["TEST_BROKEN"]
TINY = (
    "hot=1000 single=1000 churn=20000 mixed=20000 live=5000 order=512 pipeline=2000 remote=5000 "
    "thread_steps=5000 starts=1 memory=1M"
).split()
BOTH = ("floor", "malloc")


def run(*arguments, preload="", broken="none"):
    environment = dict(os.environ, LD_PRELOAD=preload, BROKEN=broken)
    return subprocess.run(
        [PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=170
    )


def rows(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


class Runs(unittest.TestCase):
    def whole(self, preload):
        result = run(*TINY, "json=1", preload=preload)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("gate: 12 of 12 checks passed", result.stdout)
        found = rows(result.stdout)
        self.assertEqual(
            [r["row"] for r in found[:2]] + [found[-1]["row"]], ["machine", "timer", "end"]
        )
        modes = [m for m in run("list").stdout.split() if m not in ("gate", "startup", "memory")]
        times = {(r["mode"], r["subject"], r["call"]): r for r in found if r["row"] == "times"}
        for mode in modes:
            for subject in BOTH:
                self.check(times[(mode, subject, "both")])
        self.assertEqual(sum(r["row"] == "memory" for r in found), 9)
        self.assertEqual(sum(r["row"] == "startup" for r in found), 1)
        return times

    def check(self, row):
        quantiles = row["quantiles"]
        self.assertEqual(quantiles, sorted(quantiles), row)
        self.assertEqual(row["curve"], sorted(row["curve"]), row)
        self.assertLessEqual(quantiles[-1], row["max"] * 1.001, row)
        self.assertEqual(row["ppm"], sorted(row["ppm"], reverse=True), row)
        self.assertGreater(row["count"], 0, row)
        self.assertEqual("machine" in row, row["subject"] == "malloc", row)

    def test_every_mode_runs_on_mallow_and_its_counts_are_those_asked_for(self):
        times = self.whole(MALLOW)
        self.assertEqual(times[("hot-64", "malloc", "both")]["count"], 1000)
        self.assertEqual(times[("call-64", "malloc", "malloc")]["count"], 4000)
        self.assertEqual(times[("churn-64", "malloc", "free")]["count"], 20000)
        self.assertEqual(times[("churn-64", "floor", "free")]["count"], 20000)
        self.assertEqual(times[("remote", "malloc", "both")]["count"], 10000)
        self.assertEqual(times[("threads", "malloc", "malloc")]["count"], 10000)

    def test_the_floor_does_not_call_the_allocator(self):
        # 100 windows and one before them, of 10 blocks of 32 pairs; the rest is the C library's.
        result = run("hot-64", "hot=1000", preload=BROKEN, broken="count")
        called = int(re.search(r"malloc was called (\d+) times", result.stderr).group(1))
        self.assertGreaterEqual(called, 101 * 10 * 32)
        self.assertLess(called, 101 * 10 * 32 + 200)

    def test_the_c_librarys_malloc_passes_and_people_get_a_table(self):
        result = run(*TINY, "gate", "hot-64", "memory")
        self.assertEqual(result.returncode, 0, result.stderr)
        for wanted in ("gate: 12 of 12", "timer ", "processor ", "hot-64", "floor", "blocks of"):
            self.assertIn(wanted, result.stdout)
        self.assertNotIn("churn", result.stdout)

    def test_unknown_words_are_named(self):
        result = run("chur")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no mode 'chur'", result.stderr)

    def test_counts_that_measure_nothing_are_named(self):
        for word, wanted in (
            ("hot=0", "hot=0: wanted 1 to"),
            ("hot=-5", "not a number: -5"),
            ("hot=99999999999999999g", "not a number"),
            ("live=0", "live=0: wanted 1 to"),
            ("order=18446744073709551615", "order=18446744073709551615: wanted"),
            ("memory=4095", "memory=4095: wanted 4096 to"),
            ("threads=1", "threads=1: wanted 2 to 64"),
            ("fifo=3", "fifo=3: wanted"),
        ):
            with self.subTest(word):
                result = run("hot-64", word)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(wanted, result.stderr)


class Refusals(unittest.TestCase):
    def refused(self, broken, said, *arguments):
        result = run(*(arguments or ("gate",)), preload=BROKEN, broken=broken)
        self.assertEqual(result.returncode, 1, f"{broken}: {result.stdout}")
        self.assertIn(said, result.stderr + result.stdout)

    def test_the_model_passes_when_it_is_not_broken(self):
        result = run("gate", preload=BROKEN)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_failing_allocations(self):
        self.refused("null", "FAILED")

    def test_an_address_given_twice(self):
        self.refused("twice", "FAILED: no live address is given twice")

    def test_misaligned_blocks(self):
        self.refused("misaligned", "FAILED: every size to 70,000 B is served, aligned and writable")

    def test_calloc_that_does_not_zero(self):
        self.refused("calloc", "FAILED: calloc gives zeroes")

    def test_realloc_that_loses_the_content(self):
        self.refused("realloc", "FAILED: realloc keeps the content")

    def test_a_timed_call_that_fails(self):
        for mode in ("hot-64", "call-64", "order-fifo", "pipeline"):
            with self.subTest(mode):
                counts = "hot=100000 single=1000000 order=32768 pipeline=1000000".split()
                self.refused("later", "bytes failed", mode, *counts)


if __name__ == "__main__":
    unittest.main()
