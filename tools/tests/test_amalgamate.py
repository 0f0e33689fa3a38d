# SPDX-License-Identifier: MIT
import pathlib
import subprocess

import amalgamate
from tests.tree import TreeTest


class Amalgamate(TreeTest):
    def setUp(self):
        super().setUp()
        self.write(
            "include/mallow/mallow.h", '#define MALLOW_VERSION_STRING "1.2.3"\nint mw_one(void);\n'
        )
        self.write(
            "src/base/bits.h", "#ifndef BITS_H\n#define BITS_H\nstatic int bits(void);\n#endif\n"
        )
        self.write(
            "src/base/bits.c", '#include "base/bits.h"\nint bits(void)\n{\n    return ROWS;\n}\n'
        )
        self.write("src/rows.def", "ROW(a)\nROW(b)\n")
        self.write(
            "src/all.c",
            '#define ROW(x) +1\nenum { ROWS = 0\n#include "rows.def"\n};\n'
            'enum { SAME = 0\n#include "rows.def"\n};\n#include "base/bits.c"\n'
            '#include "base/bits.h"\n#include <mallow/mallow.h>\n#include <stddef.h>\n'
            "int mw_one(void)\n{\n    return bits();\n}\n",
        )

    def test_headers_once_tables_each_time_and_it_compiles(self):
        text = amalgamate.amalgamate(self.root, "abc")
        self.assertEqual(
            (text.count("BITS_H\n"), text.count("ROW(a)"), text.count("include <")), (2, 2, 1)
        )
        self.assertIn("mallow 1.2.3", text)
        self.write("build/mallow.c", text)
        subprocess.run(
            ["cc", "-c", "-o", "mallow.o", "mallow.c"], check=True, cwd=self.root / "build"
        )

    def test_it_names_the_flags_of_the_guide(self):
        guide = pathlib.Path(__file__).parents[2] / "docs/guide/linking.md"
        self.assertIn(f"flags: `{amalgamate.FLAGS}`", guide.read_text())
        self.assertIn(f"cc {amalgamate.FLAGS} -c", amalgamate.amalgamate(self.root))

    def test_missing_project_header_stops(self):
        self.write("src/all.c", '#include "base/none.h"\n')
        with self.assertRaises(SystemExit):
            amalgamate.amalgamate(self.root)
