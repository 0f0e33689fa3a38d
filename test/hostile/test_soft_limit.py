#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program whose needs change, in a memory cgroup: glibc and jemalloc keep what the other phase needs, and are
killed; with MALLOW_SOFT_LIMIT=80% mallow gives it back first, and runs through.

The cgroup is made below the process's own, of version 1 or 2, whichever the machine has. Where none can be
made, files under a folder of our own play it (MALLOW_SYSTEM_ROOT), and a peak above the limit counts as killed.

Environment: TEST_LIBRARY, TEST_PROGRAM (hostile/phases.c); TEST_JEMALLOC, or jemalloc's usual place;
TEST_CGROUP=simulated for files even where a cgroup could be made.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

LIBRARY = os.environ["TEST_LIBRARY"]
PROGRAM = os.environ["TEST_PROGRAM"]
JEMALLOC = os.environ.get("TEST_JEMALLOC", f"/usr/lib/{os.uname().machine}-linux-gnu/libjemalloc.so.2")
MIB = 1 << 20
CGROUP = os.environ.get("TEST_CGROUP", "real")
LIMIT = 192 * MIB
LIVE = "140"  # MiB
ROUNDS = "3"


def mounts():
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ")[:3]
        yield kind, options.split(","), pathlib.Path(fields.split(" ")[4])


def own_path(wanted):
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if wanted(number, controllers.split(",")):
            return path.lstrip("/")
    return None


class Group:
    """A cgroup with a limit, made below our own; simulated where that is not possible."""

    def __init__(self):
        self.folder = None
        self.root = None
        for kind, options, mount in mounts() if CGROUP != "simulated" else ():
            if kind == "cgroup" and "memory" in options:
                path = own_path(lambda _, controllers: "memory" in controllers)
                if self.make(mount / path, "memory.limit_in_bytes", "memory.max_usage_in_bytes"):
                    return
            if kind == "cgroup2":
                path = own_path(lambda number, _: number == "0")
                if self.make(mount / path, "memory.max", "memory.peak"):
                    return
        self.simulate()

    def make(self, parent, limit, peak):
        folder = parent / f"mallow-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            return False
        try:
            (folder / limit).write_text(f"{LIMIT}\n")
            for swap in ("memory.swap.max", "memory.memsw.limit_in_bytes"):
                if (folder / swap).exists():
                    (folder / swap).write_text("0\n" if swap == "memory.swap.max" else f"{LIMIT}\n")
        except OSError:
            folder.rmdir()
            return False
        self.folder, self.peak = folder, folder / peak
        return True

    def simulate(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="mallow-cgroup-"))
        (self.root / "proc/self").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/a").mkdir(parents=True)
        (self.root / "proc/self/cgroup").write_text("0::/a\n")
        (self.root / "proc/self/mountinfo").write_text("29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        (self.root / "sys/fs/cgroup/a/memory.max").write_text(f"{LIMIT}\n")

    def run(self, **options):
        """(killed, bytes that the program's own peak was, or None)"""
        environment = {"PATH": os.environ["PATH"], **options}
        if self.root is not None:
            environment["MALLOW_SYSTEM_ROOT"] = str(self.root)

        def enter():
            if self.folder is not None:
                (self.folder / "cgroup.procs").write_text(f"{os.getpid()}\n")

        done = subprocess.run(
            [PROGRAM, LIVE, ROUNDS], capture_output=True, text=True, env=environment, timeout=120, preexec_fn=enter
        )
        killed = done.returncode == -signal.SIGKILL
        peak = int(done.stdout.split()[1]) * 1024 if done.stdout else None
        if self.root is not None and peak is not None:
            killed = peak > LIMIT
        if not killed and done.returncode != 0:
            raise AssertionError(f"status {done.returncode}: {done.stderr}")
        return killed, peak, done.stderr

    def close(self):
        if self.folder is not None:
            self.folder.rmdir()
        if self.root is not None:
            shutil.rmtree(self.root)


class SoftLimit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = Group()
        kind = "a cgroup of its own" if cls.group.folder is not None else "simulated files"
        print(f"limit {LIMIT // MIB} MiB, live {LIVE} MiB, {kind}", flush=True)

    @classmethod
    def tearDownClass(cls):
        cls.group.close()

    def say(self, who, killed, peak):
        figure = f", peak {peak // MIB} MiB" if peak is not None else ""
        print(f"{who}: {'killed' if killed else 'runs through'}{figure}", flush=True)

    def test_glibc_is_killed(self):
        killed, peak, _ = self.group.run()
        self.say("glibc", killed, peak)
        self.assertTrue(killed)

    def test_jemalloc_is_killed(self):
        if not pathlib.Path(JEMALLOC).exists():
            self.skipTest("no jemalloc here")
        killed, peak, _ = self.group.run(LD_PRELOAD=JEMALLOC)
        self.say("jemalloc", killed, peak)
        self.assertTrue(killed)

    def test_mallow_with_a_soft_limit_runs_through_below_the_cgroups(self):
        killed, peak, said = self.group.run(LD_PRELOAD=LIBRARY, MALLOW_SOFT_LIMIT="80%", MALLOW_VERBOSE="1")
        self.say("mallow, soft limit 80%", killed, peak)
        self.assertFalse(killed)
        self.assertIn(f"soft {LIMIT // 100 * 80 + LIMIT % 100 * 80 // 100}; shares are of {LIMIT}\n", said)
        # 80 % of the limit, and what is not the allocator's.
        self.assertLess(peak, LIMIT * 80 // 100 + 6 * MIB)


if __name__ == "__main__":
    unittest.main()
