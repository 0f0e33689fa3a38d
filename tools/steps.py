# SPDX-License-Identifier: MIT
"""Running the steps of a check: each with its log, its counts, and the log's tail on failure."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TAIL_LINES = 40
EXCERPT_LINES = 12
STEP_SECONDS_MAX = 1800

# How each runner reports its counts. The first that is found in a log speaks for the whole log,
# since one runner may run another; of our own summaries only the last line.
CTEST = re.compile(r"^\d+% tests passed, (?P<failed>\d+) tests? failed out of (?P<total>\d+)", re.M)
CTEST_FAILED = re.compile(
    r"^\s*\d+/\d+ Test +#\d+: .*\*\*\*(?!Skipped).*\n"
    r"(?:(?!\s*\d+/\d+ Test |\s+Start +\d+: ).*\n)*",
    re.M,
)
CTEST_SKIPPED = re.compile(r"^\s*\d+/\d+ Test .*\*\*\*Skipped", re.M)
CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
OWN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(.*)", re.M)


@dataclasses.dataclass
class Result:
    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    log: pathlib.Path


def read_counts(text):
    """(passed, failed, skipped) as the runner of this log reports them, or None."""
    if match := CTEST.search(text):
        failed, skipped = int(match["failed"]), len(CTEST_SKIPPED.findall(text))
        return int(match["total"]) - failed - skipped, failed, skipped
    if rows := CARGO.findall(text):
        return tuple(sum(map(int, column)) for column in zip(*rows))
    if rows := OWN.findall(text):
        return tuple(int(number or 0) for number in rows[-1])
    if rows := UNITTEST.findall(text):
        total = sum(int(number) for number, _ in rows)
        details = " ".join(detail for _, detail in rows)
        failed = sum(map(int, re.findall(r"(?:failures|errors)=(\d+)", details)))
        skipped = sum(map(int, re.findall(r"skipped=(\d+)", details)))
        return total - failed - skipped, failed, skipped
    return None


def count(text, status):
    """(passed, failed, skipped) of a step; one without counts is one check, by its exit status."""
    passed, failed, skipped = read_counts(text) or (int(status == 0), 0, 0)
    return passed, max(failed, int(status != 0)), skipped


def excerpt(text):
    """The lines of a failed step's log that tell most: each failed test's first and last ones."""
    sections = [section.rstrip().splitlines() for section in CTEST_FAILED.findall(text)]
    lines = []
    for section in sections or [text.rstrip().splitlines()]:
        if len(section) > EXCERPT_LINES:
            section = [section[0], "..."] + section[-EXCERPT_LINES + 2 :]
        lines += section
    return lines


class Steps:
    """Steps that are run one after the other; a failure does not stop those that follow."""

    def __init__(self, folder):
        self.folder = ROOT / "build" / folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results = []

    def run(self, name, *commands, seconds=STEP_SECONDS_MAX, environment=None):
        """Runs the commands up to the first that fails; True if none did."""
        log = self.folder / (re.sub(r"\W+", "-", name).strip("-") + ".log")
        print(f"{name} ...", end=" ", flush=True)
        start = time.monotonic()
        status = 0
        with open(log, "w") as output:
            for command in commands:
                output.write(f"$ {' '.join(map(str, command))}\n")
                output.flush()
                left = seconds - (time.monotonic() - start)
                status = self.command(command, output, left, environment)
                if status != 0:
                    output.write(f"\nexit status {status}\n")
                    break
        text = log.read_text(errors="replace")
        passed, failed, skipped = count(text, status)
        result = Result(name, passed, failed, skipped, time.monotonic() - start, log)
        self.results.append(result)
        if failed:
            print(f"FAILED ({result.seconds:.0f} s; {passed} passed, {failed} failed; {log})")
            tail = text.splitlines()[-TAIL_LINES:]
            print("\n".join("    | " + line for line in tail), flush=True)
        else:
            print(f"ok ({result.seconds:.0f} s, {passed} passed)", flush=True)
        return failed == 0

    def command(self, command, output, seconds, environment):
        try:
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                cwd=ROOT,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"{error}\n")
            return 127
        try:
            return process.wait(timeout=max(seconds, 1))
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(reason, KeyboardInterrupt):
                raise
            output.write("\nstopped: out of time\n")
            return 124

    def finish(self):
        """Prints the table, what failed, and as the last line `N passed, M failed`."""
        print()
        for result in self.results:
            verdict = "FAILED" if result.failed else "ok"
            print(
                f"  {verdict:6} {result.name:34} {result.passed:6} passed {result.failed:4} failed "
                f"{result.skipped:4} skipped {result.seconds:6.0f} s"
            )
        for result in self.results:
            if result.failed:
                print(f"\n{result.name}:")
                for line in excerpt(result.log.read_text(errors="replace")):
                    print("    | " + line)
        passed = sum(result.passed for result in self.results)
        failed = sum(result.failed for result in self.results)
        print(f"{passed} passed, {failed} failed")
        sys.stdout.flush()
        return 1 if failed or not self.results else 0
