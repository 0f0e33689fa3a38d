#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the whole library as one C file: src/all.c with all its includes of the project inlined.

Each header is inlined once, where it is first included; tables (*.def) are inlined each time. What
is not of the project (<stdint.h>, <sys/mman.h>) stays an #include.
"""

import argparse
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')

# Those of docs/guide/linking.md.
FLAGS = (
    "-O2 -fexceptions -ftls-model=initial-exec "
    "-fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free"
)

PROLOGUE = """\
// SPDX-License-Identifier: MIT
// mallow {version}, the whole library in one file, made by tools/amalgamate.py. Do not edit.
//
//   cc {flags} -c mallow.c
//
// -DMALLOW_OVERRIDE=0 leaves malloc, free and operator new alone and gives the mw_ interface only.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef MALLOW_OVERRIDE
#define MALLOW_OVERRIDE 1
#endif
#ifndef MALLOW_ASSERT
#define MALLOW_ASSERT 0
#endif
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunused-function" // the public headers'
#endif
#ifndef MALLOW_COMMIT
#define MALLOW_COMMIT "{commit}"
#endif
"""


class Amalgamation:
    """Expands one source file after another, remembering which headers are already there."""

    def __init__(self, root):
        self.root = root
        self.directories = [root / "src", root / "include"]
        self.seen = set()
        self.lines = []

    def find(self, name, quoted, including):
        places = ([including.parent] if quoted else []) + self.directories
        for place in places:
            path = (place / name).resolve()
            if path.is_file():
                return path
        return None

    def add(self, path):
        label = path.relative_to(self.root)
        self.lines.append(f"// ---- {label} ----")
        for line in path.read_text().splitlines():
            match = INCLUDE.match(line)
            target = match and self.find(match.group(2), match.group(1) == '"', path)
            if target is None:
                if match and match.group(1) == '"':
                    sys.exit(f"{label}: cannot find {match.group(2)}")
                self.lines.append(line)
            elif target.suffix == ".def" or target not in self.seen:
                self.seen.add(target)
                self.add(target)
                self.lines.append(f"// ---- {label}, continued ----")


def version_of(root):
    text = (root / "include/mallow/mallow.h").read_text()
    return re.search(r'MALLOW_VERSION_STRING "([^"]+)"', text).group(1)


def amalgamate(root, commit="unknown"):
    amalgamation = Amalgamation(root.resolve())
    amalgamation.add(amalgamation.root / "src/all.c")
    prologue = PROLOGUE.format(version=version_of(root), commit=commit, flags=FLAGS)
    return prologue + "\n".join(amalgamation.lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    text = amalgamate(arguments.root, arguments.commit)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(f"{arguments.out}: {text.count(chr(10))} lines")


if __name__ == "__main__":
    main()
