#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What .ci/run runs: tests, tidy, compilers' warnings, sanitizers, arm64, packages.

Ends with one line `N passed, M failed`; exit status 1 if anything failed. Logs: build/ci/*.log
"""

import os
import shutil
import sys

import check
from steps import Steps

SANITIZERS = ("asan", "ubsan", "tsan")


def build(preset, jobs, *targets):
    target = ["--target", *targets] if targets else []
    where = "build" if preset == "release" else f"build/{preset}"
    return (["cmake", "--preset", preset], ["cmake", "--build", where, "-j", jobs, *target])


def main():
    jobs = str(os.cpu_count())
    steps = Steps("ci")
    steps.run("packages of the real programs", ["tools/bootstrap.sh", "override"])
    check.native(steps, jobs)
    steps.run("warnings (gcc)", *build("release", jobs, "lib", "separate"))
    steps.run("tidy", ["tools/tidy"])
    steps.run("documents", [sys.executable, "docs/generate.py", "--check"])
    steps.run("packages for clang", ["tools/bootstrap.sh", "clang"])
    if shutil.which("clang-19"):
        steps.run("warnings (clang)", *build("clang", jobs, "lib", "separate"))
    steps.run(
        "assertions (debug)",
        *build("debug", jobs, "tests"),
        ["ctest", "--preset", "debug", "-j", jobs],
    )
    for preset in SANITIZERS:
        steps.run(
            f"tests under {preset}",
            *build(preset, jobs, "tests"),
            ["ctest", "--preset", preset, "-j", jobs],
        )
    check.arm64(steps, jobs)
    steps.run("amalgamation", *build("release", jobs, "amalgamation"))
    steps.run("installed package", ["tools/check_package.sh"])
    return steps.finish()


if __name__ == "__main__":
    sys.exit(main())
