#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Options by environment: what a program's user sees on stderr and in the report.

Environment: TEST_LIBRARY; TEST_PROGRAM, a verified load to run preloaded; TEST_STATIC_PROGRAM, the same
with the library inside.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["TEST_LIBRARY"]
PROGRAM = os.environ["TEST_PROGRAM"]
STATIC_PROGRAM = os.environ["TEST_STATIC_PROGRAM"]
# What is said where the kernel does not name anonymous memory.
NO_NAMES = r"\Amallow: MALLOW_NAME_MAPPINGS=1: the kernel cannot name mappings [^\n]* it has no effect\n\Z"


def run(*command, first=None, **options):
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, **options}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, preexec_fn=first)


def write_tree(root, files):
    for name, text in files.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# Makes a heap and prints its status, and by how many MiB the process has grown.
MAKE_HEAP = """if True:
    import ctypes, re, sys
    class Config(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("reserve", ctypes.c_size_t), ("prefault", ctypes.c_bool),
                    ("lock", ctypes.c_bool), ("others", ctypes.c_uint64 * 4)]
    def resident():
        return int(re.search("VmRSS:\\s*([0-9]+) kB", open("/proc/self/status").read())[1]) >> 10
    library = ctypes.CDLL(sys.argv[1])
    heap = ctypes.c_void_p(1)
    before = resident()
    config = Config(ctypes.sizeof(Config), int(sys.argv[2]) << 20, sys.argv[3] == "prefault", sys.argv[3] == "lock")
    status = library.mw_heap_create(ctypes.byref(config), ctypes.byref(heap))
    print(status, heap.value is not None, resident() - before)
"""


def option_rows():
    text = (ROOT / "src/options.def").read_text()
    return re.findall(r'^MALLOW_OPTION\((\w+),\s*(\w+),\s*"([^"]*)"', text, re.MULTILINE)


class Environment(unittest.TestCase):
    def test_silent_without_options(self):
        done = run("/bin/echo", "hello")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "hello\n", ""))

    def test_processes_with_the_same_file_write_their_reports_one_after_the_other(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report")
            with open(path, "wb") as other:  # a process that writes its report, a longer one
                fcntl.flock(other, fcntl.LOCK_EX)
                other.write(b"x" * 20000)
                other.flush()
                environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, "MALLOW_REPORT": str(path)}
                with subprocess.Popen(["/bin/echo", "hello"], stdout=subprocess.PIPE, env=environment) as done:
                    with self.assertRaises(subprocess.TimeoutExpired):
                        done.wait(0.3)
                    self.assertEqual(path.stat().st_size, 20000)
                    fcntl.flock(other, fcntl.LOCK_UN)
                    self.assertEqual(done.wait(60), 0)
            self.assertEqual(json.loads(path.read_text())["probe_owned"], True)

    def test_of_two_copies_of_the_library_the_one_that_serves_the_program_tells(self):
        with tempfile.TemporaryDirectory() as folder:
            copy, path = f"{folder}/copy.so", pathlib.Path(folder, "report")
            shutil.copy(LIBRARY, copy)
            environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": f"{copy}:{LIBRARY}", "MALLOW_REPORT": str(path),
                           "MALLOW_STATS": "1"}
            done = subprocess.run(["/bin/echo", "hello"], capture_output=True, text=True, env=environment)
            self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
            report = json.loads(path.read_text())
            self.assertEqual((set(report["symbols"].values()), report["probe_owned"]), ({True}, True))
            alone = run("/bin/echo", "hello", MALLOW_STATS="1").stderr
            self.assertEqual(done.stderr.count("\n"), alone.count("\n"))

    def test_a_static_executable_is_served_by_what_is_linked_in(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "report")
            subprocess.run([STATIC_PROGRAM, "--ours"], check=True, capture_output=True, env={"MALLOW_REPORT": str(path)})
            report = json.loads(path.read_text())
            self.assertEqual((set(report["symbols"].values()), report["probe_owned"]), ({True}, True))

    def test_a_report_is_json_whatever_the_programs_path_is_made_of(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.fsencode(folder) + b"/caf\xe9"
            shutil.copy("/bin/echo", program)
            path = pathlib.Path(folder, "report")
            self.assertEqual(run(program, "hello", MALLOW_REPORT=str(path)).stdout, "hello\n")
            self.assertEqual(json.loads(path.read_bytes())["exe"], f"{folder}/caf\N{REPLACEMENT CHARACTER}")

    def test_a_file_that_the_program_opens_in_place_of_a_closed_stderr_stays_as_it_wrote_it(self):
        for option, value in (("MALLOW_STATS", "1"), ("MALLOW_REPORT", "/no/such/folder/report")):
            with self.subTest(option=option), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "data")
                script = f"import os; fd = os.open({str(path)!r}, os.O_CREAT | os.O_WRONLY); os.write(fd, b'%d' % fd)"
                done = run("/bin/sh", "-c", 'exec 2>&-; exec "$@"', "sh", sys.executable, "-c", script,
                           **{option: value})
                self.assertEqual((done.returncode, path.read_text()), (0, "2"))

    def test_files_that_the_program_opens_in_place_of_all_its_descriptors_stay_as_it_wrote_them(self):
        for option, value, words in (("MALLOW_STATS", "1", "mallow: statistics\n"),
                                     ("MALLOW_REPORT", "/no/such/folder/report", "mallow: the file of MALLOW_REPORT")):
            for first in (3, 2): # with stderr as it was, and without
                with self.subTest(option=option, first=first), tempfile.TemporaryDirectory() as folder:
                    script = (f"import os; os.closerange({first}, 200)\n"
                              f"for i in range(110): os.open({folder!r} + f'/{{i}}', os.O_CREAT | os.O_WRONLY)")
                    done = run(sys.executable, "-c", script, **{option: value})
                    written = [path.name for path in pathlib.Path(folder).iterdir() if path.stat().st_size > 0]
                    self.assertEqual((done.returncode, written), (0, []))
                    self.assertEqual(done.stderr[:len(words)], words if first == 3 else "")

    def test_unknown_option_is_named_in_one_line_and_the_program_runs_on(self):
        done = run("/bin/echo", "hello", MALLOW_FOO="1")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertRegex(done.stderr, r"\Amallow: unknown option MALLOW_FOO\b[^\n]*\n\Z")

    def test_each_bad_value_is_named_in_one_line_and_the_program_runs_on(self):
        for name, kind, _ in option_rows():
            if kind == "TEXT":
                continue
            for value in ("nonsense", "12Q", "-3", ""):
                with self.subTest(option=name, value=value):
                    done = run("/bin/echo", "hello", **{f"MALLOW_{name.upper()}": value})
                    self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
                    self.assertRegex(done.stderr, rf"\Amallow: [^\n]*MALLOW_{name.upper()}\b[^\n]*\n\Z")

    def test_an_unknown_mode_is_named_in_one_line_and_the_default_stays(self):
        done = run("/bin/echo", "hello", MALLOW_MODE="fastest")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertRegex(done.stderr, r"\Amallow: [^\n]*MALLOW_MODE=fastest\b[^\n]*\n\Z")
        done = run("/bin/true", MALLOW_MODE="fastest", MALLOW_VERBOSE="1")
        self.assertIn("mallow: option mode = default\n", done.stderr)
        done = run("/bin/echo", "hello", MALLOW_MODE="Default")
        self.assertEqual((done.stdout, done.stderr), ("hello\n", ""))

    def test_a_bad_value_after_a_good_one_leaves_the_default_as_its_line_says(self):
        # Only a bare execve gives a program one name twice.
        for name, good, bad, default in (("HUGE_CACHE", "1M", "nonsense", "32M"), ("STATS", "1", "maybe", "0"),
                                         ("LIMIT", "512M", "1M", "0"), ("SYSTEM_ROOT", "/tmp", "x" * 300, "")):
            variables = [f"LD_PRELOAD={LIBRARY}", f"MALLOW_{name}={good}", f"MALLOW_{name}={bad}", "MALLOW_VERBOSE=1"]
            code = ("import ctypes, sys; words = [word.encode() for word in sys.argv[1:]]; "
                    "environment = (ctypes.c_char_p * (len(words) + 1))(*words, None); "
                    "ctypes.CDLL(None).execve(b'/bin/true', (ctypes.c_char_p * 2)(b'true', None), environment)")
            done = subprocess.run([sys.executable, "-c", code, *variables], capture_output=True, text=True, timeout=60)
            with self.subTest(option=name):
                self.assertEqual(done.returncode, 0)
                self.assertRegex(done.stderr, rf"\Amallow: bad value MALLOW_{name}={bad[:10]}[^\n]*; the default stays\n")
                self.assertIn(f"mallow: option {name.lower()} = {default}\n", done.stderr)
                self.assertNotIn("limits in bytes", done.stderr)

    def test_a_text_that_is_too_long_is_one_line_and_the_default_stays(self):
        for name in ("MODE", "REPORT", "SYSTEM_ROOT"):
            done = run("/bin/echo", "hello", **{f"MALLOW_{name}": "x" * 300})
            self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
            self.assertRegex(done.stderr, rf"\Amallow: [^\n]*MALLOW_{name}=xxx[^\n]*\.\.\.: the text is too long[^\n]*\n\Z")

    def test_a_threshold_that_cannot_be_is_named_in_one_line_and_the_default_stays(self):
        for value in ("4K", "65535", "10M"):
            done = run("/bin/true", MALLOW_HUGE_THRESHOLD=value, MALLOW_VERBOSE="1")
            self.assertRegex(done.stderr, rf"\Amallow: [^\n]*MALLOW_HUGE_THRESHOLD={value}: [^\n]*64K to 1M[^\n]*\n")
            self.assertIn("mallow: option huge_threshold = 1M\n", done.stderr)
        for value in ("64K", "1M", "300K"):
            done = run("/bin/true", MALLOW_HUGE_THRESHOLD=value)
            self.assertEqual(done.stderr, "")

    def test_realtime_says_what_it_could_not_reserve(self):
        done = run("/bin/echo", "hello", MALLOW_MODE="realtime", MALLOW_REALTIME_RESERVE="1G", MALLOW_ARENA_RESERVE="64M")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertRegex(done.stderr, r"\Amallow: realtime: [^\n]* MALLOW_REALTIME_RESERVE=1G\n\Z")

    def test_realtime_takes_no_more_than_is_free(self):
        # To bring in more would have the kernel kill for it: the machine's memory, or the group's.
        stat = "anon 1\ninactive_file 33554432\nactive_file 16777216\n"
        group = {"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": "9 1 0:6 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                 "sys/fs/cgroup/a/memory.max": f"{100 << 20}\n", "sys/fs/cgroup/a/memory.current": f"{84 << 20}\n",
                 "sys/fs/cgroup/a/memory.stat": stat}
        much = {"proc/meminfo": "MemTotal: 67108864 kB\nMemFree: 1024 kB\nMemAvailable: 141312 kB\n"}
        little = {"proc/meminfo": "MemTotal: 67108864 kB\nMemFree: 1024 kB\nMemAvailable: 65536 kB\n"}
        for files, free in ((little, 64), ({**much, **group}, 64), ({**little, **group}, 64), (much, 0)):
            with self.subTest(free=free, files=sorted(files)), tempfile.TemporaryDirectory() as root:
                write_tree(root, files)
                done = run("/bin/cat", "/proc/self/status", MALLOW_MODE="realtime", MALLOW_REALTIME_RESERVE="128M",
                           MALLOW_SYSTEM_ROOT=root)
                resident = int(re.search(r"VmRSS:\s*(\d+) kB", done.stdout)[1]) >> 10
                if free:
                    self.assertRegex(done.stderr, r"\Amallow: realtime: [^\n]*only 64M of memory is free[^\n]* MALLOW_REALTIME_RESERVE=128M\n\Z")
                    self.assertTrue(free // 2 <= resident < free // 2 + 12, resident)
                else:
                    self.assertNotIn("is free", done.stderr)
                    self.assertGreater(resident, 126)

    def test_a_heap_whose_reserve_is_not_free_is_refused(self):
        for free, mib, how, refused in ((60, 64, "prefault", True), (60, 64, "lock", True), (60, 58, "prefault", True),
                                        (60, 56, "prefault", False), (60, 64, "neither", False),
                                        (1, 14, "prefault", False)):
            with self.subTest(free=free, mib=mib, how=how), tempfile.TemporaryDirectory() as root:
                write_tree(root, {"proc/meminfo": f"MemAvailable: {free << 10} kB\n"})
                done = run("/usr/bin/python3", "-c", MAKE_HEAP, LIBRARY, str(mib), how, MALLOW_SYSTEM_ROOT=root)
                status, made, grown = done.stdout.split()
                self.assertEqual((status, made), ("4", "False") if refused else ("0", "True"), done.stderr)
                grows = how == "prefault" and not refused
                self.assertTrue(mib <= int(grown) < mib + 8 if grows else int(grown) < 8, grown)

    def test_a_heap_says_why_there_is_none(self):
        done = run("/usr/bin/python3", "-c", MAKE_HEAP, LIBRARY, "2", "prefault", MALLOW_MODE="realtime")
        self.assertEqual(done.stdout.split()[:2], ["2", "False"])

        def lock_nothing():
            drop_bounding, lock = 24, 14  # PR_CAPBSET_DROP, CAP_IPC_LOCK: only root may, and need
            ctypes.CDLL(None).prctl(drop_bounding, lock, 0, 0, 0)
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

        for how, status in (("lock", "5"), ("prefault", "0")):
            done = run("/usr/bin/python3", "-c", MAKE_HEAP, LIBRARY, "2", how, first=lock_nothing)
            self.assertEqual(done.stdout.split()[0], status, done.stderr)

    def test_realtime_says_that_no_request_can_be_served(self):
        done = run("/bin/true", MALLOW_MODE="realtime", MALLOW_REALTIME_RESERVE="0")
        self.assertRegex(done.stderr, r"\Amallow: realtime: [^\n]* MALLOW_REALTIME_RESERVE=0\n")

    def test_giant_pages_that_the_system_has_not_are_one_line_and_the_program_runs_on(self):
        free = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")
        if free.exists() and int(free.read_text()) > 0:
            self.skipTest("the system has giant pages")
        for value, wanted in (("2G", 2), ("1", 1), ("1025M", 2)):
            done = run("/bin/echo", "hello", MALLOW_GIANT_PAGES=value)
            self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
            self.assertRegex(done.stderr, rf"\Amallow: giant pages: 0 of {wanted} [^\n]*free_hugepages[^\n]* MALLOW_GIANT_PAGES={value}\n\Z")
        done = run("/bin/echo", "hello", MALLOW_GIANT_PAGES="0")
        self.assertEqual((done.stdout, done.stderr), ("hello\n", ""))

    def test_the_load_runs_with_every_option_moved(self):
        settings = [
            ("ARENA_RESERVE", "1G"),
            ("ARENA_RESERVE", "32M"),
            ("HUGE_THRESHOLD", "64K"),
            ("HUGE_CACHE", "0"),
            ("HUGE_CACHE", "1G"),
            ("TRIM_THRESHOLD", "0"),
            ("TRIM_THRESHOLD", "1T"),
            ("NAME_MAPPINGS", "1"),
            ("LIMIT", "1G"),
            ("LIMIT", "90%"),
            ("SOFT_LIMIT", "4M"),
            ("SOFT_LIMIT", "1%"),
        ]
        for name, value in settings:
            with self.subTest(option=name, value=value):
                done = run(PROGRAM, "--ours", **{f"MALLOW_{name}": value})
                self.assertEqual((done.returncode, re.sub(NO_NAMES, "", done.stderr)), (0, ""))

    def test_mappings_are_named_by_option_only(self):
        done = run("/bin/cat", "/proc/self/maps")
        self.assertNotIn("mallow]", done.stdout)
        named = run("/bin/cat", "/proc/self/maps", MALLOW_NAME_MAPPINGS="1")
        self.assertEqual(named.returncode, 0)
        if "[anon:mallow]" in named.stdout:
            self.assertEqual(named.stderr, "")
        else:
            self.assertRegex(named.stderr, NO_NAMES)
            self.skipTest("a kernel without names for anonymous memory")
        # A name is no reason to have more mappings.
        self.assertLessEqual(len(named.stdout.splitlines()), len(done.stdout.splitlines()) + 2)

    def test_limits_are_shown_as_they_come_out(self):
        done = run("/bin/true", MALLOW_VERBOSE="1", MALLOW_LIMIT="512M", MALLOW_SOFT_LIMIT="384M")
        self.assertIn("mallow: limits in bytes: hard 536870912, soft 402653184; shares are of none\n", done.stderr)
        done = run("/bin/true", MALLOW_SYSTEM_ROOT="/nonexistent", MALLOW_LIMIT="80%", MALLOW_PRESSURE="5")
        self.assertEqual(done.returncode, 0)
        self.assertIn("mallow: MALLOW_LIMIT=80%: no cgroup's limit, nor", done.stderr)
        self.assertIn("mallow: MALLOW_PRESSURE=5%: neither", done.stderr)
        done = run("/bin/true", MALLOW_LIMIT="64M", MALLOW_SOFT_LIMIT="64M")
        self.assertEqual(done.stderr, "mallow: MALLOW_SOFT_LIMIT=64M: not below MALLOW_LIMIT; it has no effect\n")

    def test_verbose_shows_every_option(self):
        done = run("/bin/true", MALLOW_VERBOSE="1")
        for name, _, _ in option_rows():
            self.assertIn(name, done.stderr)

    def test_stats_are_printed_at_the_end(self):
        done = run("/bin/echo", "hello", MALLOW_STATS="1")
        self.assertEqual(done.stdout, "hello\n")
        self.assertGreater(len(done.stderr.splitlines()), 5)

    def test_a_reader_that_has_gone_does_not_end_the_program(self):
        for options in ({"MALLOW_FOO": "1"}, {"MALLOW_STATS": "1"}, {"MALLOW_VERBOSE": "1"},
                        {"MALLOW_REPORT": "/nowhere/at/all"}, {"MALLOW_MODE": "none"}, {"MALLOW_GIANT_PAGES": "1T"}):
            with self.subTest(options=options):
                reader, writer = os.pipe()
                os.close(reader)
                environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, **options}
                done = subprocess.run(["/bin/true"], stderr=writer, env=environment, timeout=60)
                os.close(writer)
                self.assertEqual(done.returncode, 0)

    def test_a_limit_of_file_size_does_not_end_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/report"
            done = run("/bin/bash", "-c", "ulimit -f 0; exec /bin/true", MALLOW_REPORT=path)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, rf"\Amallow: [^\n]*MALLOW_REPORT[^\n]*: {path}\n\Z")

    def test_the_programs_own_signals_are_its_own(self):
        # What it has blocked stays so, what it waits for stays, and it is ended by SIGPIPE as ever.
        code = ("import os, signal; "
                "signal.signal(signal.SIGPIPE, signal.SIG_DFL); "
                "assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, []); "
                "r, w = os.pipe(); os.close(r); os.write(w, b'x')")
        done = run(shutil.which("python3"), "-S", "-c", code, MALLOW_FOO="1")
        self.assertEqual(done.returncode, -13)

    def test_stats_survive_a_closed_stderr(self):
        done = run("/bin/sh", "-c", "exec 2>&-; exec /bin/true", MALLOW_STATS="1")
        self.assertEqual(done.returncode, 0)

    def test_report_proves_that_the_library_is_active(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(PROGRAM, "--ours", MALLOW_REPORT=f"{folder}/report.%p.json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            reports = list(pathlib.Path(folder).glob("report.*.json"))
            self.assertEqual(len(reports), 1)  # children that _exit write none
            report = json.loads(reports[0].read_text())
            self.assertEqual(reports[0].name, f"report.{report['pid']}.json")
            self.assertTrue(report["probe_owned"])
            self.assertTrue(all(report["symbols"].values()), report["symbols"])
            self.assertEqual(pathlib.Path(report["exe"]).resolve(), pathlib.Path(PROGRAM).resolve())
            self.assertGreater(report["stats"]["os_map_count"], 0)
            self.assertGreater(report["process"]["peak_rss_bytes"], 1 << 20)

    def test_report_to_an_impossible_path_does_not_stop_the_program(self):
        done = run("/bin/echo", "hello", MALLOW_REPORT="/nowhere/at/all.%p.json") # echo closes stderr at its end
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertRegex(done.stderr, r"\Amallow: [^\n]*MALLOW_REPORT[^\n]*/nowhere/at/all.[0-9]+.json[^\n]*\n\Z")

    def test_a_report_to_a_pipe_that_nobody_reads_does_not_hold_the_program_up(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/pipe"
            os.mkfifo(path)
            done = run("/bin/true", MALLOW_REPORT=path)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, rf"\Amallow: [^\n]*MALLOW_REPORT[^\n]*: {path}\n\Z")
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            done = run("/bin/true", MALLOW_REPORT=path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(json.loads(os.read(reader, 65536))["probe_owned"])
            os.close(reader)

    def test_a_report_that_does_not_fit_is_one_line_with_its_path(self):
        done = run("/bin/echo", "hello", MALLOW_REPORT="/dev/full")
        self.assertEqual((done.returncode, done.stdout), (0, "hello\n"))
        self.assertRegex(done.stderr, r"\Amallow: [^\n]*MALLOW_REPORT[^\n]*: /dev/full\n\Z")

    def test_environment_is_ignored_in_setuid_programs(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make a setuid program")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            copied = pathlib.Path(folder, "setuid")
            shutil.copy(STATIC_PROGRAM, copied)
            copied.chmod(0o4755)
            options = {"MALLOW_REPORT": f"{folder}/report.json", "MALLOW_VERBOSE": "1", "MALLOW_FOO": "1"}
            plain = subprocess.run([STATIC_PROGRAM], capture_output=True, text=True, env=options, timeout=60)
            self.assertIn("MALLOW_FOO", plain.stderr)
            pathlib.Path(folder, "report.json").unlink(missing_ok=True)
            done = subprocess.run(
                [copied], capture_output=True, text=True, env=options, timeout=60, user=65534, group=65534
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertFalse(pathlib.Path(folder, "report.json").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
