# SPDX-License-Identifier: MIT
"""The harness itself: what it must refuse, above all a preload that silently failed."""
import os
import pathlib

from support import Config, OverrideCase, ScenarioError, check_reports, wait_until, CORE_SYMBOLS


def report(exe, **changes):
    symbols = {name: True for name in CORE_SYMBOLS}
    symbols.update(changes)
    return {"exe": exe, "symbols": symbols, "probe_owned": all(symbols.values())}


class Harness(OverrideCase):
    def test_a_process_without_the_library_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "not active in /bin/b"):
            check_reports([report("/bin/a"), report("/bin/b", malloc=False)], ["a"])
        with self.assertRaisesRegex(AssertionError, "0 reports of perl"):
            check_reports([], ["perl"])
        check_reports([report("/bin/a"), report("/bin/b", free=False)], ["a"], exempt=["b"])

    def test_a_difference_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "another with the library preloaded"):
            self.both(lambda side: side.name)

    def test_a_signal_and_a_complaint_are_refused(self):
        mallow = self.sides[1]
        with self.assertRaisesRegex(ScenarioError, "SIGABRT"):
            mallow.run(["/bin/sh", "-c", "kill -ABRT $$"], expect=None)
        with self.assertRaisesRegex(ScenarioError, "the library complains"):
            mallow.run(["/bin/sh", "-c", "echo 'mallow: invalid free of 0x1' >&2"])
        with self.assertRaisesRegex(ScenarioError, "no end after"):
            mallow.run(["/bin/sleep", "60"], timeout=0.2)

    def test_the_preloaded_side_is_preloaded_and_the_other_is_not(self):
        def scenario(side):
            process = side.start(["/bin/sleep", "60"])
            environment = pathlib.Path(f"/proc/{process.pid}/environ")
            wait_until(environment.read_bytes, "the environment, which the kernel sets late")
            preloaded = Config.preload.encode() in environment.read_bytes()
            side.stop(process)
            return preloaded == side.preload
        self.assertTrue(self.both(scenario))

    def test_a_plain_program_writes_a_report(self):
        self.both(lambda side: side.run(["/bin/ls", "/"]).out)
        self.assertFalse(os.listdir(self.sides[0].report_directory))
        self.assert_active("ls")
