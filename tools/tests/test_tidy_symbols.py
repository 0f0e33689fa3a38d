# SPDX-License-Identifier: MIT
import tidy_layers
import tidy_symbols
from tests.tree import TreeTest


class State(TreeTest):
    def check(self):
        objects = tidy_layers.find_objects(self.root, self.root / "build")
        return tidy_symbols.check_state(self.root, objects)

    def test_constants_even_with_pointers_are_no_state(self):
        self.compile("src/base/a.c", 'const char *const names[] = {"a", "b"}; const int b = 3;')
        self.assertEqual(self.check(), [])

    def test_every_kind_of_writable_variable(self):
        for text in (
            "int a;",
            "int a = 1;",
            "static int a; int *b(void) { return &a; }",
            "int b(void) { static int a = 4; return ++a; }",
            'const char *a = "x";',
        ):
            with self.subTest(text):
                self.compile("src/base/a.c", "\n" + text)
                found = self.check()
                self.assertEqual(
                    [(f.rule, f.path, f.line) for f in found], [("writable", "src/base/a.c", 2)]
                )

    def test_process_may_hold_state(self):
        self.compile("src/process/p.c", "struct process { int a; } process;")
        self.assertEqual(self.check(), [])

    def test_one_thread_local_pointer_in_heap(self):
        self.compile("src/heap/h.c", "_Thread_local void *heap_of_thread;")
        self.assertEqual(self.check(), [])
        self.compile("src/process/p.c", "_Thread_local int second;")
        self.assertEqual([f.rule for f in self.check()], ["thread-local", "thread-local"])

    def test_thread_local_elsewhere(self):
        self.compile("src/base/h.c", "_Thread_local void *other;")
        self.assertEqual(self.rules(self.check()), ["writable"])


class Exports(TreeTest):
    def test_inline_functions_are_not_exported(self):
        self.write(
            "include/mallow/inline.h",
            "int mw_out(int);\nstatic inline int mw_in(int a) {\n    return mw_out(a);\n}\n",
        )
        self.assertEqual(set(tidy_symbols.public_names(self.root)), {"mw_out"})

    def test_public_names_are_functions_only(self):
        self.write(
            "include/mallow/a.h",
            "// mw_comment(x)\n#define mw_macro(x) \\\n    mw_other(x)\n"
            "MW_API void *mw_one(int a);\n"
            "struct mw_type { int a; };\nvoid mw_two(struct mw_type *);\n",
        )
        self.assertEqual(set(tidy_symbols.public_names(self.root)), {"mw_one", "mw_two"})

    def test_difference_in_each_direction(self):
        found = list(
            tidy_symbols.compare_exports(
                {"mw_one", "stray"}, {"mw_one": "h", "mw_two": "h"}, {"malloc"}
            )
        )
        self.assertEqual(
            [f.message.split()[:2] for f in found],
            [["exports", "stray,"], ["mw_two", "is"], ["libmallow.so", "does"]],
        )

    def test_equal_sets(self):
        self.assertEqual(
            list(tidy_symbols.compare_exports({"mw_one", "free"}, {"mw_one": "h"}, {"free"})), []
        )
