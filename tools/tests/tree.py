# SPDX-License-Identifier: MIT
"""A small source tree on disk for a test, compiled where the test needs objects."""

import pathlib
import subprocess
import tempfile
import unittest

LAYERS = "base :\nheap : base\nprocess : base heap\napi : base heap process\n"


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/LAYERS", LAYERS)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def compile(self, path, text):
        """Writes src/<layer>/<file>.c and leaves its object where CMake's separate build would."""
        self.write(path, text)
        layer = pathlib.PurePath(path).parts[1]
        target = self.root / f"build/CMakeFiles/layer_{layer}.dir/{path}.o"
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-fPIC", "-c", "-o", str(target), str(self.root / path)], check=True)

    def rules(self, findings):
        return sorted({finding.rule for finding in findings})
