#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libmallow-pool.a needs nothing at all, and runs without libc.

Environment: TEST_POOL_LIBRARY, the archive; TEST_PROGRAM, freestanding.c linked with -nostdlib;
TEST_POOL_NEEDS, what the build may need all the same: memset and memcpy, where it is not optimised.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["TEST_POOL_LIBRARY"]
PROGRAM = os.environ["TEST_PROGRAM"]


def symbols(*options, weak=False):
    command = ["nm", "-f", "posix", *options, LIBRARY]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in output.splitlines() if len(line.split()) >= 2]
    return {row[0] for row in rows if not weak or row[1] == "w"}


class Freestanding(unittest.TestCase):
    def test_needs_nothing(self):
        # Weak ones (nm's w) are used where they are: AddressSanitizer's run-time. The table that leads to
        # them is the linker's.
        given = symbols("--defined-only") | symbols("--undefined-only", weak=True) | {"_GLOBAL_OFFSET_TABLE_"}
        needed = symbols("--undefined-only") - given
        self.assertLessEqual(needed, set(os.environ["TEST_POOL_NEEDS"].split()))

    def test_has_no_writable_state(self):
        output = subprocess.run(["size", LIBRARY], check=True, capture_output=True, text=True).stdout
        for line in output.splitlines()[1:]:
            _, data, bss = line.split()[:3]
            # .data.rel.ro counts as data: tables of addresses, in the presets and the statuses
            self.assertEqual(bss, "0", line)
            if not any(name in line for name in ("pool_preset", "pool_status", "pool_text")):
                self.assertEqual(data, "0", line)

    def test_has_every_call_that_is_not_hosted(self):
        headers = ("pool.h", "pool_lane.h", "dispatch.h")
        text = "".join((ROOT / "include/mallow" / name).read_text() for name in headers)
        hosted = {"mw_pool_create", "mw_pool_destroy", "mw_pool_grow", "mw_pool_set_create", "mw_pool_set_destroy"}
        defined = {name for name in symbols("--defined-only") if name.startswith("mw_") and "." not in name}
        declared = {
            name
            for line in text.splitlines()
            if line.startswith("MW_API")
            for name in [line.split("(")[0].split()[-1].lstrip("*")]
        }
        self.assertGreater(len(declared), 30)
        self.assertEqual(declared - defined, hosted)
        self.assertEqual(defined - declared, set())

    def test_runs_without_libc(self):
        self.assertEqual(subprocess.run([PROGRAM]).returncode, 0)

    def test_compiles_with_the_headers_of_the_compiler_alone(self):
        headers = subprocess.run(
            ["gcc", "-print-file-name=include"], check=True, capture_output=True, text=True
        ).stdout.strip()
        with tempfile.TemporaryDirectory() as folder:
            for source in sorted((ROOT / "src/pool").glob("*.c")) + [ROOT / "src/base/format.c"]:
                if source.name != "pool_host.c":
                    command = ["gcc", "-std=gnu17", "-ffreestanding", "-nostdinc", "-isystem", headers]
                    command += ["-Iinclude", "-Isrc", "-c", str(source), "-o", f"{folder}/object.o"]
                    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
