# SPDX-License-Identifier: MIT
import unittest

import tidy_headers
from tests.tree import TreeTest


class Headers(TreeTest):
    def found(self):
        return sorted(
            (f.path, f.line, f.message.split(":")[0].rsplit(" ", 1)[1])
            for f in tidy_headers.check(self.root)
        )

    def test_good_headers(self):
        self.write("include/mallow/a.h", "#include <stddef.h>\nsize_t mw_a(void);\n")
        self.write(
            "src/base/b.h",
            "#include <mallow/a.h>\nstatic inline size_t b(void) { return mw_a(); }\n",
        )
        self.assertEqual(self.found(), [])

    def test_missing_include(self):
        self.write("src/base/b.h", "\nsize_t b(void);\n")
        self.assertEqual(self.found(), [("src/base/b.h", 2, "C")])

    def test_public_header_that_is_no_cpp(self):
        self.write("include/mallow/a.h", "int mw_a(int class);\n")
        languages = ["C++", "clang's"] if tidy_headers.CLANG else ["C++"]
        self.assertEqual(self.found(), [("include/mallow/a.h", 1, name) for name in languages])

    @unittest.skipUnless(tidy_headers.CLANG, "no clang++")
    def test_public_header_that_clang_warns_of(self):
        self.write(
            "include/mallow/a.h",
            '#ifdef __cplusplus\nextern "C"\n#endif\n'
            "inline long mw_a(int i) { return (long)i; }\n",
        )
        self.assertEqual(self.found(), [("include/mallow/a.h", 4, "clang's")])
