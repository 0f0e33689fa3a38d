# SPDX-License-Identifier: MIT
"""gcc, g++, make, cmake and the linker on source trees of others: what they write is byte-equal.

The trees are Debian's: zlib, libiberty and bfd of binutils-source, and googletest.
"""
import glob
import os
import shutil
import subprocess

from support import OverrideCase, digest_tree, full_only, program

BINUTILS = "/usr/src/binutils/binutils-*.tar.xz"
GOOGLETEST = "/usr/src/googletest"


class Compilers(OverrideCase):
    def unpack(self):
        """The parts of the binutils source that are libraries."""
        archives = glob.glob(BINUTILS)
        if not archives:
            self.skipTest(f"{BINUTILS} is not installed (tools/bootstrap.sh override)")
        unwanted = [f"--exclude=binutils-*/{part}" for part in (
            "gas", "ld", "binutils", "gold", "gprof", "gprofng", "elfcpp")]
        subprocess.run(["tar", "-C", self.top, *unwanted, "-xf", archives[0]], check=True)
        return os.path.join(self.top, os.path.basename(archives[0]).removesuffix(".tar.xz"))

    def build_c(self, targets, pattern="*.o"):
        """configure and make: the shell, make, gcc, cc1, as, ld and ar, each preloaded."""
        gcc, make = program(self, "gcc"), program(self, "make")
        assembler = program(self, "as")
        source = self.unpack()

        def scenario(side):
            tree = side.path("src")
            shutil.copytree(source, tree, symlinks=True)
            env = {"CC": f"{gcc} -O2 -g", "MAKEINFO": "true", "CONFIG_SHELL": "/bin/sh"}
            for part in targets:
                build = side.path("build", part)
                os.makedirs(build)
                # The path of the build is in the debug information: map it to the same name.
                flags = f"-fdebug-prefix-map={side.directory}=/x -ffile-prefix-map={tree}=/x"
                side.run([f"../../src/{part}/configure", "--disable-nls", "--disable-werror"],
                         cwd=build, env={**env, "CFLAGS": flags}, timeout=300)
                side.run([make, "-s", "all"], cwd=build, timeout=1500,
                         env={**env, "MAKEFLAGS": "-j1"})
            return digest_tree(side.path("build"), pattern), digest_tree(side.path("build"), "*.a")

        objects, archives = self.both(scenario)
        self.assertGreaterEqual(len(objects), 15)
        self.assertGreater(len(archives), 0)
        programs = [os.path.basename(os.path.realpath(path))
                    for path in (gcc, make, assembler, program(self, "sed"))]
        self.assert_active("cc1", *programs, least=5)
        return objects

    def test_gcc_compiles_zlib_byte_for_byte(self):
        self.build_c(("zlib",))

    @full_only
    def test_gcc_compiles_libiberty_and_bfd_byte_for_byte(self):
        objects = self.build_c(("libiberty", "zlib", "libsframe", "bfd"))
        self.assertGreater(len(objects), 130)

    def test_gxx_compiles_googletest_which_then_passes(self):
        gxx = program(self, "g++")
        source = os.path.join(GOOGLETEST, "googletest")
        if not os.path.isdir(source):
            self.skipTest("googletest is not installed (tools/bootstrap.sh override)")
        include = ["-I", f"{source}/include", "-I", source]

        def scenario(side):
            for name, file in (("all", "src/gtest-all.cc"), ("main", "src/gtest_main.cc"),
                               ("sample", "samples/sample6_unittest.cc"),
                               ("prime", "samples/sample8_unittest.cc")):
                side.run([gxx, "-O2", *include, "-c", f"{source}/{file}", "-o", f"{name}.o"],
                         timeout=300)
            for name in ("sample", "prime"):
                side.run([gxx, "all.o", "main.o", f"{name}.o", "-pthread", "-o", f"{name}.test"])
            objects = digest_tree(side.directory)
            passed = [side.run([f"./{name}.test", "--gtest_print_time=0"]).out
                      for name in ("sample", "prime")]
            return objects, passed

        objects, _ = self.both(scenario)
        self.assertEqual(len(objects), 6)
        self.assert_active("cc1plus", "sample.test", "prime.test")

    def test_link_time_optimisation(self):
        gcc = program(self, "gcc")
        lines = ["#include <stdio.h>"]
        for i in range(400):
            inner = f"f{i - 1}(x + 1)" if i else "x"
            lines.append(f"int f{i}(int x) {{ return x * {i} + {inner}; }}")
        parts = {"a.c": "\n".join(lines),
                 "b.c": "#include <stdio.h>\nint f399(int);\n"
                        "int main(void) { printf(\"%d\\n\", f399(3)); return 0; }\n"}

        def scenario(side):
            for name, text in parts.items():
                side.write(name, text)
            side.run([gcc, "-O2", "-flto=2", "-frandom-seed=1", "-Wl,--build-id=none", "a.c", "b.c",
                      "-o", "program"], timeout=300)
            return side.run(["./program"]).out, digest_tree(side.directory, "program")

        self.both(scenario)
        self.assert_active("lto1", "program")

    def test_cmake_configures_and_ninja_builds(self):
        cmake, ninja = program(self, "cmake"), program(self, "ninja")
        if not os.path.isdir(GOOGLETEST):
            self.skipTest("googletest is not installed (tools/bootstrap.sh override)")
        lists = f"""cmake_minimum_required(VERSION 3.13)
project(demo C CXX)
include(CheckIncludeFile)
include(CheckCXXSourceCompiles)
foreach(header stdio.h pthread.h no_such_header.h sys/epoll.h)
  string(MAKE_C_IDENTIFIER have_${{header}} name)
  check_include_file(${{header}} ${{name}})
  message(STATUS "${{name}}=${{${{name}}}}")
endforeach()
check_cxx_source_compiles("int main() {{ return *new int(0); }}" WORKS)
find_package(Threads REQUIRED)
add_library(gtest_main STATIC {GOOGLETEST}/googletest/src/gtest_main.cc)
target_include_directories(gtest_main PUBLIC {GOOGLETEST}/googletest/include)
foreach(i RANGE 30)
  file(WRITE ${{CMAKE_BINARY_DIR}}/g${{i}}.c "int g${{i}}(void) {{ return ${{i}}; }}\\n")
  list(APPEND parts ${{CMAKE_BINARY_DIR}}/g${{i}}.c)
endforeach()
add_library(parts STATIC ${{parts}})
"""

        def scenario(side):
            side.write("CMakeLists.txt", lists)
            out = side.run([cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", ".", "-B",
                            "build"], timeout=180).text()
            said = sorted(line for line in out.splitlines() if "=" in line or "Performing" in line)
            side.run([cmake, "--build", "build", "-j2"], timeout=300)
            side.run([ninja, "-C", "build", "-n"])
            return said, digest_tree(side.path("build"), "*.o"), digest_tree(side.path("build"),
                                                                             "*.a")

        said, objects, archives = self.both(scenario)
        self.assertIn("-- have_no_such_header_h=", said)
        # CMake leaves the objects of its own compiler checks nowhere: 31 parts and one of C++.
        self.assertEqual((len(archives), len(objects)), (2, 32))
        self.assert_active("cmake", "ninja", "cc1", "cc1plus")
