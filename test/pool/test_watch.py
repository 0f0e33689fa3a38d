#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tools that watch memory see into pools in debugging: AddressSanitizer, and valgrind's memcheck.

Environment: TEST_ASAN and TEST_MEMCHECK, watch_victim.c built for either; empty where it could not be.
"""

import os
import shutil
import subprocess
import unittest


def run(*command):
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def memcheck(what):
    options = ["--leak-check=full", "--error-exitcode=9", "--errors-for-leak-kinds=definite"]
    return run("valgrind", *options, os.environ["TEST_MEMCHECK"], what)


@unittest.skipUnless(os.environ.get("TEST_ASAN"), "no AddressSanitizer")
class AddressSanitizer(unittest.TestCase):
    def test_a_touch_of_a_free_block_is_reported_where_it_happens(self):
        for what, words in (("read", "READ of size 1"), ("write", "WRITE of size 1")):
            done = run(os.environ["TEST_ASAN"], what)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("use-after-poison", done.stderr)
            self.assertIn(words, done.stderr)
            self.assertNotIn("done", done.stdout)

    def test_a_program_without_mistakes_runs_and_has_its_memory_back(self):
        done = run(os.environ["TEST_ASAN"], "none")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "done\n", ""))


@unittest.skipUnless(os.environ.get("TEST_MEMCHECK") and shutil.which("valgrind"), "no valgrind")
class Memcheck(unittest.TestCase):
    def test_a_touch_of_a_free_block_is_reported_with_who_freed_it(self):
        for what, words in (("read", "Invalid read of size 1"), ("write", "Invalid write of size 1")):
            done = memcheck(what)
            self.assertEqual(done.returncode, 9, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertIn("17 bytes inside a block of size 208 free'd", done.stderr)
            self.assertIn("mw_pool_debug_free", done.stderr)

    def test_a_block_that_nothing_leads_to_is_lost(self):
        done = memcheck("lost")
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertRegex(done.stderr, r"in \d+ blocks are definitely lost")
        self.assertIn("mw_pool_debug_alloc", done.stderr)

    def test_what_was_never_written_is_not_taken_for_contents(self):
        done = memcheck("unwritten")
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("uninitialised value", done.stderr)

    def test_a_program_without_mistakes_has_none(self):
        done = memcheck("none")
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        self.assertIn("ERROR SUMMARY: 0 errors", done.stderr)


if __name__ == "__main__":
    unittest.main()
