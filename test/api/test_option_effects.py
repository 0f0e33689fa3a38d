#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every option does what it says: a probe with the option's default, and with another value.

Environment: TEST_LIBRARY.
"""

import errno
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["TEST_LIBRARY"]
# Those whose effect other tests show: they need a system that has such pages, or files of its own.
ELSEWHERE = {
    "huge_pages": "test/idle/tests.cmake",
    "huge_faults": "test/idle/tests.cmake",
    "giant_pages": "test/api/test_environment.py",
    "pressure": "test/unit/process/test_process_limit.c",
    "system_root": "test/api/test_environment.py",
}

PRELUDE = """if True:
    import ctypes, json, os, sys, time
    library = ctypes.CDLL(sys.argv[1])
    library.mw_malloc.restype = ctypes.c_void_p
    library.mw_malloc.argtypes = [ctypes.c_size_t]
    library.mw_free.argtypes = [ctypes.c_void_p]
    library.mw_stats_json.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(1 << 20)
    def stats(name):
        library.mw_stats_json(room, len(room))
        return json.loads(room.value)[name]
    def take(count, size):
        blocks = [library.mw_malloc(size) for _ in range(count)]
        for block in blocks:
            if block:
                ctypes.memset(block, 1, size)
        return blocks
    def give(blocks):
        for block in blocks:
            library.mw_free(block)
"""


def run(script, **options):
    """What the script prints, and what stderr has."""
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, **options}
    script = PRELUDE + "".join(f"    {line}\n" for line in script.split("\n"))
    done = subprocess.run(
        [sys.executable, "-c", script, LIBRARY], capture_output=True, text=True, env=environment, timeout=60
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout.strip(), done.stderr


def number(script, **options):
    return int(run(script, **options)[0])


class Effects(unittest.TestCase):
    def test_every_option_is_here_or_elsewhere(self):
        rows = re.findall(r"^MALLOW_OPTION\((\w+),", (ROOT / "src/options.def").read_text(), re.M)
        here = {name.removeprefix("test_option_") for name in dir(self) if name.startswith("test_option_")}
        self.assertEqual(here & set(ELSEWHERE), set())
        self.assertEqual(here | set(ELSEWHERE), set(rows))
        for name, path in ELSEWHERE.items():
            self.assertIn(name, (ROOT / path).read_text().lower())

    def test_option_stats(self):
        self.assertEqual(run("pass")[1], "")
        self.assertIn("live", run("pass", MALLOW_STATS="1")[1])

    def test_option_report(self):
        with tempfile.TemporaryDirectory() as folder:
            run("pass", MALLOW_REPORT=f"{folder}/%p.json")
            (report,) = pathlib.Path(folder).iterdir()
            self.assertTrue(report.stem.isdigit())
            json.loads(report.read_text())

    def test_option_verbose(self):
        self.assertIn("mallow: option huge_cache = 32M\n", run("pass", MALLOW_VERBOSE="1")[1])

    def test_option_arena_reserve(self):
        script = "print(stats('reserved_bytes') >> 20)"
        self.assertLess(number(script, MALLOW_ARENA_RESERVE="256M"), 512)
        self.assertGreater(number(script, MALLOW_ARENA_RESERVE="2G"), 2000)

    def test_option_huge_threshold(self):
        script = "before = stats('huge_live_count')\nkept = take(5, 200000)\nprint(stats('huge_live_count') - before)"
        self.assertEqual(number(script), 0)
        self.assertEqual(number(script, MALLOW_HUGE_THRESHOLD="64K"), 5)

    def test_option_huge_cache(self):
        script = "give(take(4, 4 << 20))\nprint(stats('huge_cached_bytes') >> 20)"
        self.assertGreater(number(script), 0)
        self.assertEqual(number(script, MALLOW_HUGE_CACHE="0"), 0)

    def test_option_trim_threshold(self):
        script = "give(take(400, 100000))\nprint(stats('free_dirty_bytes') >> 20)"
        self.assertGreater(number(script), 20)
        self.assertLess(number(script, MALLOW_TRIM_THRESHOLD="0"), 2)

    def test_option_mode(self):
        script = "before = stats('os_map_count')\ntake(1000, 10000)\nprint(stats('os_map_count') - before)"
        self.assertGreater(number(script), 0)
        self.assertEqual(number(script, MALLOW_MODE="realtime"), 0)

    def test_option_realtime_reserve(self):
        script = "print(sum(block is not None for block in take(400, 100000)))"
        for reserve, least, most in (("96M", 400, 400), ("32M", 100, 300)):
            count = number(script, MALLOW_MODE="realtime", MALLOW_REALTIME_RESERVE=reserve)
            self.assertTrue(least <= count <= most, count)

    def test_option_background(self):
        # What the second thread gives back no other does while the program sleeps.
        script = (
            "give(take(1000, 50000))\n"
            "end = time.monotonic() + float(os.environ['SECONDS'])\n"
            "while stats('free_dirty_bytes') >= 8 << 20 and time.monotonic() < end:\n"
            "    time.sleep(0.2)\n"
            "print(stats('free_dirty_bytes') >> 20)"
        )
        self.assertLess(number(script, SECONDS="30"), 8)
        self.assertGreater(number(script, SECONDS="2.5", MALLOW_BACKGROUND="0"), 20)

    def test_option_name_mappings(self):
        script = "print('[anon:mallow' in open('/proc/self/maps').read())"
        self.assertEqual(run(script)[0], "False")
        if run(script, MALLOW_NAME_MAPPINGS="1")[0] != "True":
            self.skipTest("a kernel without names for anonymous memory")

    def test_option_limit(self):
        script = "print(sum(block is not None for block in take(400, 100000)))"
        self.assertEqual(number(script), 400)
        count = number(script, MALLOW_LIMIT="32M")
        self.assertTrue(100 < count < 320, count)

    def test_option_soft_limit(self):
        script = "give(take(400, 100000))\nkept = take(10, 1000000)\nprint(stats('held_bytes') >> 20)"
        self.assertGreater(number(script), 40)
        self.assertLess(number(script, MALLOW_SOFT_LIMIT="24M"), 32)


class Defaults(unittest.TestCase):
    def test_the_environment_wins_over_a_programs_default(self):
        script = (
            "error = library.mw_option_set_default(b'huge_cache', b'16M')\n"
            "library.mw_option_get.restype = ctypes.c_char_p\n"
            "print(error, library.mw_option_get(b'huge_cache', room, len(room)).decode())"
        )
        self.assertEqual(run(script)[0], "0 16M")
        self.assertEqual(run(script, MALLOW_HUGE_CACHE="2M")[0], f"{errno.EALREADY} 2M")

    def test_options_are_printed_as_verbose_does(self):
        printed = run("library.mw_options_print(2)")[1].splitlines()
        shown = run("pass", MALLOW_VERBOSE="1")[1].replace("verbose = 1", "verbose = 0").splitlines()
        self.assertEqual(printed, [line for line in shown if line.startswith("mallow: option ")])
        self.assertIn("mallow: option trim_threshold = 64M", printed)


if __name__ == "__main__":
    unittest.main()
