# SPDX-License-Identifier: MIT
"""Running a scenario twice, once with the allocator preloaded and once without.

A `Side` is one of the two: it owns an empty directory, an environment made from nothing (so that
the machine's settings cannot leak in) and every process that it started. A test runs the same
scenario on both sides at the same time and gets two results; they must be equal, and the reports
that the library wrote at the exit of each preloaded process must show that it served the program.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CORE_SYMBOLS = ("malloc", "calloc", "realloc", "free", "posix_memalign", "malloc_usable_size")
UNPRIVILEGED = "nobody"


class Config:
    """Set once by run.py, before any test runs."""
    library = os.path.join(ROOT, "build", "lib", "libmallow.so")
    full = False
    preload = None      # a copy of the library that every user may read
    stand_in = False    # another allocator: it writes no reports
    scratch = None      # removed at the end
    sides = []          # those of the running test, for an end by a signal

    @classmethod
    def prepare(cls):
        cls.scratch = tempfile.mkdtemp(prefix="override-")
        os.chmod(cls.scratch, 0o755)
        # Programs keep the file mapped while a developer builds the next one, and the unprivileged
        # user of a server cannot always reach the build directory: so a copy.
        cls.preload = os.path.join(cls.scratch, os.path.basename(cls.library))
        shutil.copyfile(cls.library, cls.preload)
        os.chmod(cls.preload, 0o755)
        with open(cls.preload, "rb") as file:
            cls.stand_in = b"mw_malloc\0" not in file.read()

    @classmethod
    def cleanup(cls):
        for side in cls.sides:
            side.stop_all()
        shutil.rmtree(cls.scratch, ignore_errors=True)


class Outcome:
    """What a finished process left."""

    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    def text(self):
        return self.out.decode("utf-8", "replace")

    def describe(self):
        name = signal.Signals(-self.status).name if self.status < 0 else self.status
        tail = self.err.decode("utf-8", "replace")[-1500:]
        return f"{' '.join(map(str, self.argv))[:300]}: {name}\n{tail}{self.text()[-800:]}"


class ScenarioError(AssertionError):
    """A program did not do what every run of it must do."""


class Side:
    def __init__(self, name, directory, preload):
        self.name, self.preload = name, preload
        self.directory = os.path.join(directory, name, "work")   # both names have six letters
        self.report_directory = os.path.join(directory, name, "reports")
        self.home = os.path.join(directory, name, "home")
        for path in (self.directory, self.report_directory, self.home):
            os.makedirs(path)
            os.chmod(path, 0o1777)
        self.running = []

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    def environment(self, extra=None):
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
               "HOME": self.home, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC",
               "TMPDIR": self.home, "SOURCE_DATE_EPOCH": "1700000000"}
        env.update(extra or {})
        if self.preload:
            env["LD_PRELOAD"] = Config.preload
            if not Config.stand_in:
                env["MALLOW_REPORT"] = os.path.join(self.report_directory, "%p.json")
        return env

    def start(self, argv, env=None, cwd=None, user=None, stdin=None, stdout=None, stderr=None):
        """Starts a process in a session of its own, so that stop() reaches its children."""
        process = subprocess.Popen(
            [str(word) for word in argv], env=self.environment(env), cwd=cwd or self.directory,
            stdin=stdin or subprocess.DEVNULL, stdout=stdout or subprocess.PIPE,
            stderr=stderr or subprocess.PIPE, start_new_session=True, user=user,
            extra_groups=[] if user else None, group=user_group(user) if user else None)
        self.running.append(process)
        return process

    def run(self, argv, timeout=120, expect=0, input_bytes=None, **options):
        """Runs a program to its end. `expect` is the exit status, or None for any but a signal."""
        if input_bytes is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(argv, **options)
        try:
            out, err = process.communicate(input_bytes, timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop(process, signal.SIGKILL)
            out, err = process.communicate()
            outcome = Outcome(argv, process.returncode, out or b"", err or b"")
            raise ScenarioError(f"[{self.name}] no end after {timeout} s: "
                                + outcome.describe()) from None
        outcome = Outcome(argv, process.returncode, out or b"", err or b"")
        for line in outcome.err.decode("utf-8", "replace").splitlines():
            if self.preload and line.startswith("mallow: "):
                raise ScenarioError(f"the library complains: {line}\n" + outcome.describe())
        if process.returncode < 0 or (expect is not None and process.returncode != expect):
            raise ScenarioError(f"[{self.name}] " + outcome.describe())
        return outcome

    def stop(self, process, sig=signal.SIGTERM, timeout=20):
        """Ends a process and what is left of its session; returns its exit status."""
        if process.poll() is None:
            process.send_signal(sig)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        return process.wait()

    def stop_all(self):
        for process in self.running:
            self.stop(process, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def maps_library(self, pid):
        """Whether a process has our copy of the library mapped; None if it has ended."""
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return Config.preload in text if text else None

    def reports(self):
        """The library's reports, one for every process image that ended through exit()."""
        found = []
        for path in glob.glob(os.path.join(self.report_directory, "*.json")):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            try:
                found += [json.loads(text)] if text else []     # empty: killed as it was created
            except ValueError as error:
                raise ScenarioError(f"a report is no JSON ({error}): {text[:200]!r}") from error
        return found


def user_group(user):
    import pwd
    return pwd.getpwnam(user).pw_gid


def unprivileged_user():
    """The user for servers that refuse root; None where we are not root."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


def program(case, *names):
    """The path of the first of `names` that is installed; otherwise the test is skipped."""
    places = ["/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    for name in names:
        path = shutil.which(name, path=":".join(places))
        if path:
            return path
    return case.skipTest(f"{' / '.join(names)} is not installed (tools/bootstrap.sh override)")


def digest(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def digest_tree(root, pattern="*"):
    """Relative name -> hash of content, for every file below `root` whose name matches."""
    found = {}
    for path in sorted(glob.glob(os.path.join(root, "**", pattern), recursive=True)):
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = digest(file.read())
    return found


def wait_until(condition, what, timeout=30):
    """Polls a condition that another process makes true."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise ScenarioError(f"{what}: not within {timeout} s")
        time.sleep(0.05)


def full_only(function):
    """Marks a test that --quick leaves out (run.py)."""
    function.full_only = True
    return function


class OverrideCase(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.top = tempfile.mkdtemp(dir=Config.scratch)
        os.chmod(self.top, 0o755)
        self.sides = (Side("system", self.top, False), Side("mallow", self.top, True))
        Config.sides = self.sides
        self.addCleanup(shutil.rmtree, self.top, True)
        for side in self.sides:
            self.addCleanup(side.stop_all)

    def both(self, scenario):
        """Runs `scenario(side)` on the two sides at once; the results must be equal. Returns it."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tasks = [pool.submit(scenario, side) for side in self.sides]
            try:
                without, preloaded = [task.result() for task in tasks]
            except KeyboardInterrupt:
                for side in self.sides:
                    side.stop_all()
                raise
        self.assertEqual(self.normalised(without, self.sides[0]),
                         self.normalised(preloaded, self.sides[1]),
                         "the program's result is another with the library preloaded")
        return preloaded

    def normalised(self, value, side):
        if isinstance(value, bytes):
            value = value.decode("utf-8", "backslashreplace")
        if isinstance(value, str):
            return re.sub(re.escape(os.path.dirname(side.directory)), "<SIDE>", value)
        if isinstance(value, dict):
            return {key: self.normalised(item, side) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.normalised(item, side) for item in value]
        return value

    def assert_active(self, *names, least=1, exempt=()):
        """The library served every program of `names` (base names, as prefixes) in at least `least`
        processes, and no process but the exempt ones ran on another allocator's malloc."""
        if Config.stand_in:
            return
        check_reports(self.sides[1].reports(), names, least, exempt)

    def assert_mapped(self, side, pid, *children):
        self.assertEqual(side.maps_library(pid), side.preload)
        for child in children:
            self.assertIn(side.maps_library(child), (side.preload, None))


def check_reports(reports, names, least=1, exempt=()):
    served = {name: 0 for name in names}
    for report in reports:
        base = os.path.basename(report["exe"].removesuffix(" (deleted)"))
        bound = [report["symbols"].get(symbol, False) for symbol in CORE_SYMBOLS]
        if not base.startswith(tuple(exempt) or ("\0",)):
            if not (all(bound) and report["probe_owned"]):
                raise AssertionError(f"the library is not active in {report['exe']}: {report}")
            for name in names:
                served[name] += base.startswith(name)
    for name, count in served.items():
        if count < least:
            exes = sorted({report["exe"] for report in reports})
            raise AssertionError(f"{count} reports of {name}, expected {least}; reported: {exes}")


def log(text):
    print(f"    {text}", file=sys.stderr, flush=True)
