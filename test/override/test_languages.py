# SPDX-License-Identifier: MIT
"""Language run-times with allocation habits of their own: node, java, perl, lua, ruby, awk, bash,
php, which opens its extensions with RTLD_DEEPBIND.

The programs are in programs/; each prints check sums of what it computed.
"""
import os

from support import HERE, Config, OverrideCase, digest_tree, program

PROGRAMS = os.path.join(HERE, "programs")


def scale():
    return "6" if Config.full else "2"


class Languages(OverrideCase):
    def run_program(self, runtime, file, *options, exempt=(), served=None, timeout=300):
        """Runs programs/<file>; its output must be equal, and end with `done`."""
        path = program(self, *([runtime] if isinstance(runtime, str) else runtime))

        def scenario(side):
            return side.run([path, *options, os.path.join(PROGRAMS, file), scale()],
                            timeout=timeout).out

        out = self.both(scenario)
        self.assertTrue(out.endswith(b"done\n"), out[-200:])
        self.assert_active(served or os.path.basename(os.path.realpath(path)), exempt=exempt)

    def test_node_with_worker_threads(self):
        self.run_program(("node", "nodejs"), "workload.js", "--expose-gc")

    def test_perl_with_threads(self):
        self.run_program("perl", "workload.pl")

    def test_lua(self):
        self.run_program(("lua5.4", "lua"), "workload.lua")

    def test_ruby_with_threads_and_compaction(self):
        self.run_program("ruby", "workload.rb")

    def test_php_with_extensions(self):
        self.run_program("php", "workload.php")

    def test_awk(self):
        self.run_program("gawk", "workload.awk", "-f")

    def test_bash_with_subshells(self):
        self.run_program("bash", "workload.sh")

    def test_python_with_threads(self):
        path = program(self, "/usr/bin/python3", "python3")

        def scenario(side):
            outs = []
            for allocator in ("pymalloc", "malloc", "malloc_debug"):
                outs.append(side.run([path, os.path.join(PROGRAMS, "workload.py"), scale()],
                                     env={"PYTHONMALLOC": allocator}, timeout=300).out)
            return outs

        for out in self.both(scenario):
            self.assertTrue(out.endswith(b"done\n"), out[-200:])
        self.assert_active("python3", least=3)

    def test_javac_and_java_with_threads(self):
        javac, java = program(self, "javac"), program(self, "java")
        source = os.path.join(PROGRAMS, "Workload.java")

        def scenario(side):
            side.run([javac, "-d", ".", source], timeout=300)
            classes = digest_tree(side.directory, "*.class")
            outs = []
            for collector in ("-XX:+UseSerialGC", "-XX:+UseG1GC", "-XX:+UseZGC"):
                outs.append(side.run([java, "-Xmx512m", "-Xcheck:jni", collector, "-cp", ".",
                                      "Workload", scale()], timeout=300).text())
            return classes, outs

        classes, outs = self.both(scenario)
        self.assertIn("Workload.class", classes)
        for out in outs:
            self.assertTrue(out.endswith("done\n"), out[-200:])
        self.assert_active("javac", "java", least=1)
