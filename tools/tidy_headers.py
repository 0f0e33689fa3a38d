# SPDX-License-Identifier: MIT
"""Every header compiles alone: public ones as C and as C++, internal ones as C."""

import concurrent.futures
import os
import re
import shutil
import subprocess

from tidy_common import Finding, tree_files

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
INTERNAL = [
    "-std=gnu17",
    "-D_GNU_SOURCE=",
    "-DMALLOW_ASSERT=0",
    "-DMALLOW_OVERRIDE=1",
    '-DMALLOW_COMMIT="none"',
]
LANGUAGES = {
    "C": ["cc", "-x", "c", "-std=c11", "-Wpedantic"],
    "C++": ["c++", "-x", "c++", "-std=c++11", "-Wpedantic"],
}
CLANG = shutil.which("clang++-19") or shutil.which("clang++")
if CLANG:  # which warns of more that programs may have as an error
    LANGUAGES["C++ of clang's"] = [CLANG, *LANGUAGES["C++"][1:], "-Wold-style-cast"]
ERROR = re.compile(r":(\d+):\d+: (?:fatal )?error: (.*)")


def compile_alone(root, path, language, command):
    """A finding, or None. The header is included, so that it is no main file to the compiler."""
    name = path.relative_to(path.parts[0])
    line = f"#include <{name}>\n" if path.parts[0] == "include" else f'#include "{name}"\n'
    run = subprocess.run(
        [*command, *WARNINGS, "-fsyntax-only", "-I", "include", "-I", "src", "-"],
        input=line,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "LC_ALL": "C"},
    )
    if run.returncode == 0:
        return None
    match = ERROR.search(run.stderr)
    number, message = (
        (int(match.group(1)), match.group(2)) if match else (1, run.stderr.strip()[:200])
    )
    return Finding(
        str(path), number, "header-alone", f"does not compile alone as {language}: {message}"
    )


def check(root):
    jobs = []
    for path in tree_files(root, ("include",)):
        for language, command in LANGUAGES.items():
            if path.suffix == ".h" or language != "C":
                jobs.append((path, language, command))
    for path in tree_files(root, ("src",)):
        if path.suffix == ".h":
            jobs.append((path, "C", ["cc", "-x", "c", *INTERNAL]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda job: compile_alone(root, *job), jobs)
    return [finding for finding in results if finding]
