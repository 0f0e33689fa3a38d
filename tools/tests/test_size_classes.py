# SPDX-License-Identifier: MIT
import os
import pathlib
import subprocess
import tempfile
import unittest

import size_classes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST_CLASSES = """
#include <stdio.h>
#include "slab/size_class.h"
int main(void) {
    for (unsigned i = 0; i < MALLOW_CLASS_COUNT; i++) {
        printf("%zu\\n", size_class_bytes(i));
        if (size_class_of(size_class_bytes(i)) != i) {
            return 1;
        }
    }
    return size_class_of(MALLOW_SMALL_BYTES_MAX) + 1 != MALLOW_DIRECT_CLASS_COUNT;
}
"""
ASK = """
#include <stdlib.h>
int main(void) {
    char *block = malloc(100);
    free(calloc(3, 50));
    block = realloc(block, 260);
    free(realloc(block, 100000));
    return 0;
}
"""


class SizeClasses(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def compile(self, name, text, *flags):
        source, program = self.directory / f"{name}.c", self.directory / name
        source.write_text(text)
        subprocess.run(
            ["cc", "-D_GNU_SOURCE", "-fno-builtin", *flags, str(source), "-o", str(program)],
            check=True,
        )
        return str(program)

    def test_the_classes_are_those_of_the_library_at_every_density(self):
        for steps in size_classes.STEPS:
            bits = steps.bit_length() - 1
            program = self.compile(
                f"list{steps}",
                LIST_CLASSES,
                f"-I{ROOT}/src",
                f"-I{ROOT}/include",
                f"-DMALLOW_CLASS_STEP_BITS={bits}U",
                f"{ROOT}/src/slab/size_class.c",
            )
            said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
            self.assertEqual([int(line) for line in said.split()], size_classes.classes(steps))

    def test_waste_falls_with_the_number_of_classes(self):
        for size in range(1, size_classes.SLAB_MAX + 1, 7):
            blocks = [size_classes.capacity(size, steps) for steps in size_classes.STEPS]
            self.assertEqual(blocks, sorted(blocks, reverse=True))
            self.assertGreaterEqual(blocks[-1], size)
        self.assertAlmostEqual(size_classes.worst_waste(1), 0.5, places=1)
        self.assertAlmostEqual(size_classes.mean_waste({24: 3, 32: 1}, 8), 1 - 104 / 128)

    def test_a_move_is_a_step_that_the_class_does_not_hold(self):
        # 64 -> 96 -> 144 ... in powers of two: every other step or so leaves its class.
        double = size_classes.series_moves(1, lambda size: 2 * size)
        self.assertEqual(double, 1.0)
        self.assertLess(size_classes.series_moves(1, lambda size: size + 1), 0.001)

    def test_counts_of_several_processes_add_up(self):
        histogram, grows = size_classes.read_counts(
            ["size 16 2", "large 1 100000", "grows 3 1 2 3 3", "size 16 1", "grows 1 0 0 0 1"]
        )
        self.assertEqual(histogram, {16: 3})
        self.assertEqual(grows, [4, 1, 2, 3, 4])

    def test_the_recorder_counts_what_a_program_asks_for(self):
        recorder = self.compile(
            "recorder.so",
            (ROOT / "bench/sizes/record_sizes.c").read_text(),
            "-shared",
            "-fPIC",
            "-O1",
        )
        program = self.compile("ask", ASK)
        environment = os.environ | {"LD_PRELOAD": recorder, "SIZES_DIR": str(self.directory)}
        subprocess.run([program], check=True, env=environment)
        (counts,) = self.directory.glob("*.txt")
        lines = counts.read_text().splitlines()
        histogram, grows = size_classes.read_counts(lines)
        self.assertEqual(histogram, {100: 1, 150: 1, 260: 1})
        self.assertIn("large 1 100000", lines)
        # The last realloc may hold its old and new block at once or not; nothing else is alive.
        (live,) = [int(line.split()[1]) for line in lines if line.startswith("live ")]
        self.assertTrue(100000 <= live < 104500, live)
        # glibc holds 104 bytes: 260 fits in none of 128, 128, 112, 112.
        self.assertEqual(grows, [1, 1, 1, 1, 1])


if __name__ == "__main__":
    unittest.main()
