#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs programs that nobody here wrote on mallow, by LD_PRELOAD, and compares with the system's.

    test/override/run.py [--quick | --full] [--lib PATH] [-k PATTERN] [--list]

Every test says what it ran; a program that is not installed is a skip with its reason.
"""
import argparse
import os
import signal
import sys
import time
import unittest

import support


class Progress(unittest.TestResult):
    """One line a test, as it ends; the tracebacks at the end."""

    def __init__(self, total):
        super().__init__()
        self.total, self.begun, self.passed, self.details = total, 0, 0, []
        self.subtest_failed, self.current = False, None

    def startTest(self, test):
        super().startTest(test)
        self.current = name_of(test)
        self.begun += 1
        self.subtest_failed = False
        self.start = time.monotonic()
        print(f"[{self.begun}/{self.total}] {self.current} ...", flush=True)

    def say(self, word, reason=""):
        seconds = time.monotonic() - self.start
        print(f"    {word} ({seconds:.1f} s){': ' + reason if reason else ''}", flush=True)

    def addSuccess(self, test):
        if not self.subtest_failed:
            self.passed += 1
            self.say("ok")

    def bad(self, test, records):
        self.say("FAILED")
        self.details.append((name_of(test), records[-1][1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.bad(test, self.failures)

    def addError(self, test, err):
        super().addError(test, err)
        self.start = getattr(self, "start", time.monotonic())
        self.bad(test, self.errors)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.subtest_failed = True
            self.details.append((str(subtest), self._exc_info_to_string(err, test)))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.start = getattr(self, "start", time.monotonic())
        self.say("skipped", reason)


def name_of(test):
    return test.id() if hasattr(test, "id") else str(test)


def is_full_only(test):
    method = getattr(test, getattr(test, "_testMethodName", ""), None)
    return getattr(method, "full_only", False)


def every_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from every_test(item)
        else:
            yield item


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", action="store_true", help="the tests of `make test` (default)")
    tier.add_argument("--full", action="store_true", help="all of them, on larger inputs")
    parser.add_argument("--lib", default=support.Config.library, help="the library to preload")
    parser.add_argument("--list", action="store_true", help="name the tests and stop")
    parser.add_argument("-k", action="append", default=[], metavar="PATTERN",
                        help="only tests whose name contains this (may be given several times)")
    options = parser.parse_args()

    loader = unittest.TestLoader()
    tests = list(every_test(loader.discover(support.HERE, "test_*.py", support.HERE)))
    if not options.full:
        tests = [test for test in tests if not is_full_only(test)]
    if options.k:
        tests = [test for test in tests if any(word in name_of(test) for word in options.k)]
    if options.list:
        print("\n".join(name_of(test) for test in tests))
        return 0
    if not tests:
        print("no test has that name", file=sys.stderr)
        return 2
    support.Config.library = os.path.abspath(options.lib)
    support.Config.full = options.full
    if not os.path.exists(support.Config.library):
        print(f"{support.Config.library} does not exist: run make first", file=sys.stderr)
        return 2

    signal.signal(signal.SIGTERM, signal.default_int_handler)     # so that servers are stopped
    started = time.monotonic()
    support.Config.prepare()
    result, interrupted = Progress(len(tests)), False
    try:
        print(f"preloading {support.Config.library}"
              + (" (not mallow: activity is not checked)" if support.Config.stand_in else ""))
        unittest.TestSuite(tests).run(result)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        support.Config.cleanup()
    if interrupted:
        print(f"interrupted in {result.current}")
    for name, text in result.details:
        print(f"\n== {name}\n{text}")
    failed = len({name for name, _ in result.details})
    print(f"override: {time.monotonic() - started:.0f} s")
    print(f"{result.passed} passed, {failed} failed, {len(result.skipped)} skipped")
    return 1 if failed or interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
