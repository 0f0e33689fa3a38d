# SPDX-License-Identifier: MIT
import tidy_common
import tidy_layers
from tests.tree import TreeTest


class Layers(TreeTest):
    def layers(self):
        return tidy_common.read_layers(self.root / "src/LAYERS")

    def calls(self):
        objects = tidy_layers.find_objects(self.root, self.root / "build")
        return tidy_layers.check_calls(self.root, tidy_layers.object_graph(objects), self.layers())

    def test_a_layer_may_not_use_one_that_comes_later(self):
        self.write("src/LAYERS", "base : heap\nheap :\n")
        with self.assertRaises(ValueError):
            self.layers()

    def test_downward_include(self):
        self.write("src/base/bits.h", "")
        self.write("include/mallow/mallow.h", "")
        self.write(
            "src/heap/heap.c",
            '#include "base/bits.h"\n#include "config.h"\n#include "mallow/mallow.h"\n',
        )
        self.assertEqual(tidy_layers.check_includes(self.root, self.layers()), ([], 0))

    def test_upward_include(self):
        self.write("src/heap/heap.h", "")
        self.write("src/base/bits.c", '\n#include "heap/heap.h"\n')
        found, upward = tidy_layers.check_includes(self.root, self.layers())
        self.assertEqual((self.rules(found), found[0].line, upward), (["upward-include"], 2, 1))

    def test_upward_include_by_a_relative_path(self):
        self.write("src/heap/heap.h", "")
        self.write("src/base/bits.c", '#include "../heap/heap.h"\n')
        self.assertEqual(tidy_layers.check_includes(self.root, self.layers())[1], 1)

    def test_commented_include_does_not_count(self):
        self.write("src/base/bits.c", '// #include "heap/heap.h"\n')
        self.assertEqual(tidy_layers.check_includes(self.root, self.layers()), ([], 0))

    def test_unknown_folder_and_included_source(self):
        self.write("src/other/a.c", "")
        self.write("src/base/b.c", '#include "base/c.c"\n')
        found, _ = tidy_layers.check_includes(self.root, self.layers())
        self.assertEqual(self.rules(found), ["include", "layer"])

    def test_unity_order(self):
        for path in ("src/base/a.c", "src/heap/b.c", "src/heap/c.c", "src/preload/d.c"):
            self.write(path, "")
        self.write("src/all.c", '#include "base/a.c"\n#include "heap/b.c"\n#include "heap/c.c"\n')
        self.assertEqual(tidy_layers.check_unity_order(self.root, self.layers()), [])
        self.write("src/all.c", '#include "heap/b.c"\n#include "base/a.c"\n#include "base/a.c"\n')
        messages = [f.message for f in tidy_layers.check_unity_order(self.root, self.layers())]
        self.assertEqual(len(messages), 4)  # a after a higher layer (twice), a twice, c missing

    def test_downward_call(self):
        self.compile("src/base/a.c", "int a(void) { return 1; }")
        self.compile("src/heap/b.c", "int a(void); int b(void) { return a(); }")
        self.assertEqual(self.calls(), ([], 0, 1))

    def test_upward_call(self):
        self.compile("src/base/a.c", "int b(void);\nint a(void) { return b(); }")
        self.compile("src/heap/b.c", "int b(void) { return 1; }")
        found, upward, cycle = self.calls()
        self.assertEqual(
            (self.rules(found), found[0].line, upward, cycle), (["upward-call"], 1, 1, 1)
        )

    def test_code_inlined_from_a_layer_below_may_need_what_that_one_uses(self):
        self.write("src/LAYERS", "base :\nheap : base\napi : heap\n")
        self.compile("src/base/a.c", "int a(void) { return 1; }")
        self.compile("src/api/b.c", "int a(void); int b(void) { return a(); }")
        self.assertEqual(self.calls(), ([], 0, 1))

    def test_cycle_inside_one_layer(self):
        self.compile("src/heap/a.c", "int b(void); int a(void) { return b(); }")
        self.compile("src/heap/b.c", "int c(void); int b(void) { return c(); }")
        self.compile("src/heap/c.c", "int a(void); int c(void) { return a(); }")
        self.compile("src/heap/d.c", "int a(void); int d(void) { return a(); }")
        found, upward, cycle = self.calls()
        self.assertEqual((self.rules(found), upward, cycle), (["cycle"], 0, 3))

    def test_object_of_a_source_that_is_gone_is_ignored(self):
        self.compile("src/heap/a.c", "int a;")
        (self.root / "src/heap/a.c").unlink()
        self.assertEqual(tidy_layers.find_objects(self.root, self.root / "build"), {})


class Components(TreeTest):
    def test_two_cycles_joined_by_one_edge(self):
        graph = {"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a"]}
        self.assertEqual(tidy_layers.largest_component(graph), ["c", "d", "e"])

    def test_cycle_closed_late(self):
        graph = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["a"]}
        self.assertEqual(tidy_layers.largest_component(graph), ["a", "b", "c", "d"])
