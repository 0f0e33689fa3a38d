#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`make test` and `make test-arm64`: builds the tests, runs them all, sums up.

Ends with one line `N passed, M failed`; exit status 1 if anything failed. Logs: build/check/*.log
"""

import argparse
import os
import pathlib
import shutil
import sys

from steps import ROOT, Steps

PAGE_SIZES = ("4096", "16384", "65536")


def cargo():
    return shutil.which("cargo") or str(pathlib.Path.home() / ".cargo/bin/cargo")


def native(steps, jobs):
    """Everything that runs on this machine, on the release build."""
    steps.run("packages for the tests", ["tools/bootstrap.sh", "test"])
    built = steps.run(
        "build of the library and the tests",
        ["cmake", "--preset", "release", "-DMALLOW_TESTS=ON"],
        ["cmake", "--build", "build", "-j", jobs, "--target", "tests"],
    )
    steps.run("build of the tool", ["cmake", "--build", "build", "--target", "cli"])
    if built:
        steps.run("tests (ctest)", ["ctest", "--preset", "release", "-j", jobs])
    steps.run(
        "tests of the tools",
        [sys.executable, "-m", "unittest", "discover", "-s", "tools/tests", "-t", "tools"],
    )
    steps.run("tests of the documents' check", [sys.executable, "docs/test_generate.py"])
    if built:
        steps.run(
            "real programs under preload", [sys.executable, "test/override/run.py", "--quick"]
        )
    if (ROOT / "cli/Cargo.toml").exists():
        command = "test --quiet --manifest-path cli/Cargo.toml --target-dir build/cargo"
        steps.run("tests of the tool (cargo)", [cargo(), *command.split()])


def arm64(steps, jobs):
    """The same tests, as far as they run under an emulator, once for each page size."""
    steps.run("packages for arm64", ["tools/bootstrap.sh", "arm64"])
    built = steps.run(
        "arm64 build",
        ["cmake", "--preset", "arm64"],
        ["cmake", "--build", "--preset", "arm64", "-j", jobs],
    )
    for size in PAGE_SIZES if built else ():
        usual = size == PAGE_SIZES[0]
        # What runs by both names runs by one of them on the larger pages.
        steps.run(
            f"arm64 tests, pages of {size}",
            ["ctest", "--preset", "arm64", "-j", jobs, *([] if usual else ["-E", r"\.libc$"])],
            environment={} if usual else {"QEMU_PAGESIZE": size},
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("test", "test-arm64"))
    parser.add_argument("-j", default=str(os.cpu_count()), help="programs at a time")
    arguments = parser.parse_args()
    steps = Steps("check")
    (native if arguments.what == "test" else arm64)(steps, arguments.j)
    return steps.finish()


if __name__ == "__main__":
    sys.exit(main())
