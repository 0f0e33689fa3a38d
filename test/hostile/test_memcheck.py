#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""valgrind's memcheck finds in a program that has mallow what it finds in others, however mallow is in it.

Environment: TEST_LIBRARY; TEST_PLAIN, TEST_LINKED and TEST_OBJECT, memcheck_victim.c with nothing, with the
shared library and with the override object.
"""

import os
import shutil
import subprocess
import unittest


def memcheck(program, **environment):
    command = ["valgrind", "--leak-check=full", "--error-exitcode=9", program]
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@unittest.skipUnless(shutil.which("valgrind"), "no valgrind")
class Memcheck(unittest.TestCase):
    def check(self, done):
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("Invalid read of size 1", done.stderr)
        self.assertIn("3 bytes inside a block of size 50 free'd", done.stderr)
        self.assertRegex(done.stderr, r"in (9|10) blocks are definitely lost")

    def test_preloaded(self):
        self.check(memcheck(os.environ["TEST_PLAIN"], LD_PRELOAD=os.environ["TEST_LIBRARY"]))

    def test_linked(self):
        self.check(memcheck(os.environ["TEST_LINKED"]))

    def test_override_object(self):
        self.check(memcheck(os.environ["TEST_OBJECT"]))


if __name__ == "__main__":
    unittest.main()
