# SPDX-License-Identifier: MIT
import unittest

from tidy_source import comments, functions, strip_comments


class StripComments(unittest.TestCase):
    def test_keeps_length_and_lines(self):
        text = 'int a; // one "x"\nchar *s = "/* no */ // no";\n/* two\nlines */ int b;\n'
        stripped = strip_comments(text)
        self.assertEqual(len(stripped), len(text))
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        self.assertNotIn("one", stripped)
        self.assertNotIn("no", stripped)
        self.assertIn("int b;", stripped)

    def test_a_quote_in_a_character_opens_no_string(self):
        self.assertIn("int c;", strip_comments("char q = '\"'; int c;"))

    def test_comments_are_given_with_their_lines(self):
        self.assertEqual([line for line, _ in comments("int a;\n// x\n/* y\nz */\n")], [2, 3, 4])


class Functions(unittest.TestCase):
    def names(self, text):
        return [(f.name, f.first_line, f.last_line, f.parameter_count) for f in functions(text)]

    def test_plain_function(self):
        self.assertEqual(
            self.names("int one(int a, char *b)\n{\n    return a;\n}\n"), [("one", 1, 4, 2)]
        )

    def test_void_and_empty_lists_have_no_parameters(self):
        self.assertEqual(
            self.names("void a(void)\n{\n}\nvoid b()\n{\n}\n"), [("a", 1, 3, 0), ("b", 4, 6, 0)]
        )

    def test_function_pointer_parameter_counts_once(self):
        self.assertEqual(self.names("void a(int (*f)(int, int), int b)\n{\n}\n"), [("a", 1, 3, 2)])

    def test_attributes_are_not_the_parameter_list(self):
        text = "__attribute__((noinline)) static void *slow(int a) __attribute__((malloc))\n{\n}\n"
        self.assertEqual(self.names(text), [("slow", 1, 3, 1)])
        self.assertEqual(
            self.names("MW_SIZE(1, 2) void *two(long a, long b)\n{\n}\n"), [("two", 1, 3, 2)]
        )

    def test_data_is_no_function(self):
        text = "struct s {\n int a;\n};\nenum e { A, B };\nstatic const int t[] = {1, 2};\n"
        text += "int (*p)(void) = {0};\n"
        self.assertEqual(self.names(text), [])

    def test_function_that_returns_a_struct(self):
        text = (
            "struct pair { int a; };\nstruct pair make(int a)\n{\n    return (struct pair){a};\n}\n"
        )
        self.assertEqual(self.names(text), [("make", 2, 5, 1)])

    def test_inside_extern_c(self):
        self.assertEqual(
            self.names('extern "C" {\nint one(void)\n{\n}\n}\nint two(void)\n{\n}\n'),
            [("one", 2, 4, 0), ("two", 6, 8, 0)],
        )

    def test_conditional_in_the_body_is_seen_and_braces_stay_balanced(self):
        text = "int one(void)\n{\n#if A\n    if (x) {\n#else\n    if (y) {\n#endif\n    }\n}\n"
        text += "int two(void)\n{\n}\n"
        one, two = functions(text)
        self.assertEqual(
            (one.conditional_lines, two.name, two.conditional_lines), ((3, 5), "two", ())
        )

    def test_macro_of_several_lines_is_skipped(self):
        self.assertEqual(
            self.names("#define M(x) \\\n int x(void) { \\\n\nint one(void)\n{\n}\n"),
            [("one", 4, 6, 0)],
        )


if __name__ == "__main__":
    unittest.main()
