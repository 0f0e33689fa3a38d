#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dispatch simulation, small: repeatable, with and without threads; and what it is there to show.

usage: test_dispatch_simulation.py PROGRAM
"""

import json
import subprocess
import sys
import unittest

PROGRAM = ""


def simulate(**parameters):
    """{policy: row} of one run."""
    words = [f"{name}={value}" for name, value in parameters.items()]
    run = subprocess.run(
        [PROGRAM, *words], check=True, capture_output=True, text=True, timeout=150
    )
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return {row["policy"]: row for row in rows}


class Simulation(unittest.TestCase):
    def test_threads_change_nothing(self):
        small = {"cores": 4, "ticks": 400, "training": 200, "use": 75}
        for seed in (1, 2):
            alone = simulate(seed=seed, threads=0, **small)
            self.assertEqual(len(alone), 6)
            self.assertEqual(alone, simulate(seed=seed, threads=1, **small))
            self.assertTrue(all(row["remote"] > 0 for row in alone.values()))

    def test_every_policy_meets_the_same_load(self):
        rows = simulate(threads=0, ticks=500, training=100).values()
        self.assertEqual(len({row["work"] for row in rows}), 1)
        self.assertGreater(min(row["work"] for row in rows), 500)

    def test_forecast_and_learning_refuse_less_than_looking_and_that_less_than_not(self):
        refused = {}
        for seed in (101, 102, 103):
            for policy, row in simulate(seed=seed, threads=0, ticks=6000, training=6000).items():
                refused[policy] = refused.get(policy, 0) + row["refused"]
        self.assertLess(refused["least-occupied"], refused["round-robin"])
        self.assertLess(refused["trend"], refused["least-occupied"])
        self.assertLess(refused["learned"], refused["least-occupied"])

    def test_values_that_cannot_be_are_named(self):
        for word in ("delay=4294967295", "delay=501", "ticks=4294967297", "policy=7", "cores=65", "use=1001"):
            with self.subTest(word):
                result = subprocess.run([PROGRAM, "ticks=9", word], capture_output=True, text=True)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(f"{word}: wanted", result.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
