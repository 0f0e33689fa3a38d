#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does docs/generate.py find what it should? Each case breaks a small tree in one way.

    python3 docs/test_generate.py
"""

import pathlib
import tempfile
import unittest

import generate

PAGE = "# Layer base\n" + "".join(f"\n## {heading}\n\ntext\n" for heading in generate.HEADINGS)
OPTION = 'MALLOW_OPTION(stats, SWITCH, "0", "", ALWAYS, "print statistics")\n'
FILES = {
    "src/LAYERS": "# the layers\nbase     :\n",
    "src/options.def": OPTION,
    "src/options.c": "int mw_option_set, mw_option_set_default, huge_cache; // the page of options names them\n",
    "include/mallow/mallow.h": "#define MW_API\nMW_API void *mw_one(int a); // MW_API not this\n",
    "tools/override_symbols.txt": "# head\n# C\nmalloc\n",
    "docs/design/base.md": PAGE,
    "README.md": "<!-- options: here -->\n<!-- /options -->\n[page](docs/design/base.md)\n",
}


class Generate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        before = generate.ROOT
        self.addCleanup(setattr, generate, "ROOT", before)
        generate.ROOT = pathlib.Path(folder.name)
        for name, text in FILES.items():
            self.write(name, text)
        self.write("docs/guide/empty.md", "")
        for path, text in generate.generated().items():
            path.write_text(text)

    def write(self, name, text):
        path = generate.ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def findings(self):
        drift = [path.name for path, text in generate.generated().items() if path.read_text() != text]
        return [*drift, *generate.check_layers(), *generate.check_pages(), *generate.check_names()]

    def test_a_sound_tree_has_no_findings(self):
        self.assertEqual(self.findings(), [])
        self.assertIn("| `MALLOW_STATS` | `0` | always |", (generate.ROOT / "README.md").read_text())
        self.assertIn("- `mw_one`", (generate.ROOT / "docs/guide/symbols.md").read_text())

    def test_a_new_option_makes_the_pages_differ(self):
        self.write("src/options.def", OPTION + OPTION.replace("stats", "more"))
        self.assertEqual(sorted(self.findings()), ["README.md", "options.md"])

    def test_words_and_ranges_are_named_as_values(self):
        words = OPTION.replace('SWITCH, "0", ""', 'TEXT, "a", "a|b"')
        sizes = OPTION.replace('SWITCH, "0", ""', 'SIZE, "1M", "64K..1M"')
        self.write("src/options.def", words + sizes.replace("stats", "most"))
        page = generate.options_page(generate.read_options())
        self.assertIn("- Values: `a` or `b`\n", page)
        self.assertIn(", from `64K` to `1M`\n", page)

    def test_a_new_function_makes_the_list_of_symbols_differ(self):
        self.write("include/mallow/mallow.h", "MW_API void *mw_one(int a);\nMW_API void mw_two(void);\n")
        self.assertEqual(self.findings(), ["symbols.md"])

    def test_a_row_that_is_not_understood_stops_it(self):
        self.write("src/options.def", "MALLOW_OPTION(stats, SWITCH)\n")
        self.assertRaises(SystemExit, generate.generated)

    def test_a_layer_without_a_page_is_found(self):
        self.write("src/LAYERS", "base :\nos : base\n")
        self.assertIn("docs/design/os.md", self.findings()[0])

    def test_a_missing_heading_is_found(self):
        self.write("docs/design/base.md", PAGE.replace("## Data", "## Dates"))
        self.assertIn("headings", self.findings()[0])

    def test_a_page_that_is_too_long_is_found(self):
        self.write("docs/design/base.md", PAGE + "line\n" * generate.DESIGN_LINES_MAX)
        self.assertIn("at most", self.findings()[0])

    def test_a_command_that_cannot_be_executed_is_found(self):
        self.write("docs/guide/page.md", "# Page\n\n    tools/run --all\n    build/tools/other\n")
        words = ["docs/guide/page.md: the command tools/run cannot be executed"]
        self.assertEqual(self.findings(), words)
        self.write("tools/run", "#!/bin/sh\n")
        self.assertEqual(self.findings(), words)
        (generate.ROOT / "tools/run").chmod(0o755)
        self.assertEqual(self.findings(), [])

    def test_a_name_that_the_code_does_not_have_is_found(self):
        self.write("docs/guide/page.md", "`mw_one(&heap_none)`, `mw_heap_...`, `test/heap_file.c`\n")
        self.write("docs/decisions/0001-then.md", "`heap_then` was there\n")
        self.assertEqual(self.findings(), ["docs/guide/page.md: there is no heap_none in the code"])
        self.write("src/heap/heap.h", "int heap_none;\n")
        self.assertEqual(self.findings(), [])

    def test_a_link_that_leads_nowhere_is_found(self):
        self.write("SECURITY.md", "see [it](docs/none.md), not [that](https://example.org)\n")
        self.assertEqual(self.findings(), ["SECURITY.md: the link to docs/none.md leads nowhere"])


if __name__ == "__main__":
    unittest.main()
