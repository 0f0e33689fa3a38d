# SPDX-License-Identifier: MIT
"""CPython's own test suite: every test case must end as it does on the system's allocator."""
import os
import re
import xml.etree.ElementTree

from support import OverrideCase, full_only, log, program

# Quick: modules that lean on memory, threads, fork and native libraries, and end in seconds.
QUICK = """
test_array test_asyncgen test_binascii test_bisect test_builtin test_bytes test_bz2 test_cmath
test_codecs test_collections test_complex test_contextlib test_copy test_coroutines test_csv
test_dataclasses test_defaultdict test_deque test_descr test_dict test_dictviews test_difflib
test_enum test_enumerate test_exceptions test_fileio test_finalization test_float test_fork1
test_fractions test_fstring test_functools test_gc test_generators test_gzip test_heapq test_int
test_itertools test_json test_list test_long test_marshal test_math test_memoryio test_memoryview
test_minidom test_mmap test_multibytecodec test_ordered_dict test_os test_pickle test_pickletools
test_posix test_pty test_pyexpat test_random test_re test_resource test_sax test_select test_set
test_shutil test_struct test_syntax test_sys test_tempfile test_thread test_threadedtempfile
test_threading test_threading_local test_threadsignals test_traceback test_tracemalloc test_tuple
test_typing test_unicode test_uuid test_wait3 test_weakref test_weakset test_xml_etree
test_xml_etree_c test_zipimport test_zlib
""".split()

# Full: the slow ones too, among them everything that forks, spawns and opens sockets.
FULL = QUICK + """
test_lzma test_email test_ast test_compile test_statistics test_wait4 test_shelve test_httplib
test_unicodedata test_tokenize test_hashlib test_inspect test_bool test_slice test_module
test_genexps test_longexp test_symtable test_ucn test_html test_hmac test_base64 test_string
test_bigaddrspace test_userdict test_textwrap test_glob test_types test_super test_structseq
test_iter test_grammar test_hash test_operator test_atexit test_class test_call test_sort
test_yield_from test_context test_ipaddress test_configparser test_argparse test_asyncio
test_asyncore test_audit test_buffer test_bufio test_capi test_compileall test_concurrent_futures
test_cprofile test_ctypes test_datetime test_dbm_dumb test_decimal test_dis test_doctest
test_eintr test_embed test_epoll test_faulthandler test_file test_fileinput test_format test_frame
test_ftplib test_httpservers test_imaplib test_import test_importlib test_io test_largefile
test_logging test_mailbox test_multiprocessing_fork test_multiprocessing_forkserver
test_multiprocessing_main_handling test_multiprocessing_spawn test_pathlib test_pdb test_pprint
test_pydoc test_regrtest test_repl test_runpy test_signal test_smtplib test_socket test_ssl
test_strptime test_strtod test_subprocess test_sys_settrace test_tarfile test_time test_trace
test_unittest test_univnewlines test_unparse test_urllib test_urllib2_localnet test_venv
test_warnings test_wsgiref test_xmlrpc test_xxtestfuzz test_zipapp test_zipfile test_zoneinfo
""".split()

LINE = re.compile(r"\[ *\d+/\d+(?:/\d+)?\] (\w+) (passed|failed|crashed|skipped|run no tests"
                  r"|worker|timed out|ignored)")
ALWAYS = ("test_threading", "test_os", "test_json", "test_dict", "test_gc")


class CPython(OverrideCase):
    def interpreter(self):
        """An interpreter that has its test suite: Debian's, else the one in the PATH."""
        paths = [program(self, "/usr/bin/python3", "python3")] + [
            os.path.join(folder, "python3") for folder in os.environ.get("PATH", "").split(":")]
        for path in paths:
            if os.path.exists(path) and self.sides[0].run(
                    [path, "-c", "import test.test_dict, test.test_gc"], expect=None).status == 0:
                return path
        return self.skipTest("no python3 with its test suite: Debian's is in "
                             "libpython3.11-testsuite (tools/bootstrap.sh override)")

    def existing(self, python, modules):
        """Those of the modules that this version of Python has."""
        code = "import sys, importlib.util as u\n" \
               "print(*[m for m in sys.argv[1:] if u.find_spec('test.' + m)])"
        return self.sides[0].run([python, "-c", code, *modules]).text().split()

    def suite(self, side, python, modules, env, name):
        """module -> how it ended, test case -> how it ended."""
        xml_file = side.path(f"{name}.xml")
        # Sockets to the hypervisor are left out: they hang for ever in some virtual machines.
        out = side.run([python, "-m", "test", "-j1", "--timeout=400", "-i", "*VSOCK*",
                        "--junit-xml", xml_file, "--tempdir", side.home, *modules], env=env,
                       expect=None, timeout=3000).text()
        ended = {match[1]: match[2] for match in LINE.finditer(out)}
        for module, word in ended.items():
            if word == "crashed" or re.search(rf"{module} \w+ .*SIG(SEGV|ABRT|BUS|ILL)", out):
                log(f"{side.name}: {module} crashed:\n{out[-3000:]}")
        cases = {}
        for case in xml.etree.ElementTree.parse(xml_file).iter("testcase"):
            marks = sorted(child.tag for child in case if not child.tag.startswith("system-"))
            cases[case.get("name")] = " ".join([case.get("result") or "", *marks])
        return ended, cases, out

    def compare(self, modules, env, label):
        python = self.interpreter()
        modules = self.existing(python, modules)

        results = {}
        self.both(lambda side: results.update(
            {side.name: self.suite(side, python, modules, env, label)}))
        different = self.differing(results)
        crashed = [module for module, word in results["mallow"][0].items() if word == "crashed"
                   and results["system"][0].get(module) != "crashed"]
        again = [module for module in modules if any(
            re.search(rf"(^|\.){module}(\.|$)", name) for name in different)]
        if again and not crashed:
            # Some tests race with the load of the machine. What differs runs again by itself, and
            # is a failure if it differs again; a crash always is one.
            log(f"different at first, so once more: {again}: {different}")
            first, results = results, {}
            self.both(lambda side: results.update(
                {side.name: self.suite(side, python, again, env, label + "-again")}))
            second, results = self.differing(results), first
            different = {name: how for name, how in different.items() if name in second}
        ended, cases, _ = results["system"]
        bad = sorted(name for name, how in {**ended, **cases}.items()
                     if re.search("fail|error|crash|timed", how))
        log(f"{label}: {len(ended)} modules, {len(cases)} cases; failing without us too: {bad}")
        self.assertEqual((crashed, different), ([], {}),
                         f"case: (without, preloaded)\n{results['mallow'][2][-3000:]}")
        self.assert_active("python3", least=len(modules) // 2)
        return modules

    @staticmethod
    def differing(results):
        """name -> (without, preloaded) where the two are not the same."""
        found = {}
        for part in (0, 1):
            without, preloaded = results["system"][part], results["mallow"][part]
            for name in sorted(set(without) | set(preloaded)):
                if without.get(name) != preloaded.get(name):
                    found[name] = (without.get(name), preloaded.get(name))
        return found

    def check_modules(self, modules, least):
        self.assertGreaterEqual(len(modules), least)
        self.assertLessEqual(set(ALWAYS), set(modules))

    def test_suite_with_every_object_on_malloc(self):
        self.check_modules(self.compare(QUICK, {"PYTHONMALLOC": "malloc"}, "malloc"), 60)

    @full_only
    def test_suite_with_its_own_arenas(self):
        self.check_modules(self.compare(FULL, {}, "arenas"), 100)

    @full_only
    def test_the_slow_part_with_every_object_on_malloc(self):
        slow = [module for module in FULL if module not in QUICK]
        self.compare(slow, {"PYTHONMALLOC": "malloc"}, "malloc-slow")

    @full_only
    def test_suite_with_debug_hooks(self):
        self.check_modules(self.compare(QUICK, {"PYTHONMALLOC": "malloc_debug"}, "debug"), 60)
