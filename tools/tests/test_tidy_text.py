# SPDX-License-Identifier: MIT
import tidy_text
from tests.tree import TreeTest

HEAD = "// SPDX-License-Identifier: MIT\n"


class Text(TreeTest):
    def check(self, path, text):
        self.write(path, text)
        return tidy_text.check(self.root)

    def test_clean_file(self):
        self.assertEqual(
            self.check("src/base/a.c", HEAD + "int a(void)\n{\n    return 1;\n}\n"), []
        )

    def test_file_length(self):
        aim = self.check("src/base/a.c", HEAD + "\n" * 500)
        self.assertEqual([(f.rule, f.warning) for f in aim], [("file-lines", True)])
        hard = self.check("src/base/a.c", HEAD + "\n" * 800)
        self.assertEqual(
            [(f.rule, f.warning, f.measure) for f in hard], [("file-lines", False, 801)]
        )

    def test_function_length(self):
        body = "    a();\n" * 57
        self.assertEqual(self.check("src/base/a.c", HEAD + f"void b(void)\n{{\n{body}}}\n"), [])
        body += "    a();\n"
        found = self.check("src/base/a.c", HEAD + f"void b(void)\n{{\n{body}}}\n")
        self.assertEqual([(f.rule, f.measure, f.line) for f in found], [("function-lines", 61, 2)])

    def test_parameters_are_a_warning(self):
        found = self.check(
            "src/base/a.c", HEAD + "void b(int c, int d, int e, int f, int g, int h)\n{\n}\n"
        )
        self.assertEqual([(f.rule, f.warning, f.measure) for f in found], [("parameters", True, 6)])

    def test_columns(self):
        self.assertEqual(self.check("src/base/a.c", HEAD + "/" * 2 + "x" * 98 + "\n"), [])
        self.assertEqual(
            self.rules(self.check("src/base/a.c", HEAD + "//" + "x" * 99 + "\n")), ["columns"]
        )

    def test_public_header_may_be_wider(self):
        self.assertEqual(self.check("include/mallow/a.h", HEAD + "//" + "x" * 128 + "\n"), [])

    def test_conditional_in_a_function(self):
        text = HEAD + "void b(void)\n{\n#if X\n    c();\n#endif\n}\n"
        self.assertEqual(self.rules(self.check("src/base/a.c", text)), ["if-in-function"])

    def test_conditional_in_a_function_of_os_and_outside_functions(self):
        self.write("src/os/b.c", HEAD + "void b(void)\n{\n#if X\n    c();\n#endif\n}\n")
        self.assertEqual(
            self.check("src/base/a.c", HEAD + "#if X\nvoid b(void)\n{\n}\n#endif\n"), []
        )

    def test_todo_needs_an_issue(self):
        word = "TO" + "DO"
        self.assertEqual(
            self.rules(self.check("src/base/a.c", HEAD + f"// {word}: later\n")), ["todo"]
        )
        self.assertEqual(self.check("src/base/a.c", HEAD + f"// {word}(#12): because\n"), [])

    def test_licence_head(self):
        self.assertEqual(self.rules(self.check("bench/a.cpp", "int a;\n")), ["spdx"])

    def test_one_name_once(self):
        self.write("src/base/list.h", HEAD)
        self.assertEqual(self.rules(self.check("src/heap/list.h", HEAD)), ["file-name"])
