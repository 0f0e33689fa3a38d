# SPDX-License-Identifier: MIT
import unittest

from tidy_common import Finding, apply_ratchet, layer_of, ratchet_growth, shrink_ratchet


def finding(measure, key="src/a.c"):
    return Finding("src/a.c", 1, "file-lines", "too long", key, measure)


class Ratchet(unittest.TestCase):
    def test_without_an_entry_a_finding_counts(self):
        self.assertEqual(apply_ratchet([finding(900)], {}), ([finding(900)], 0))

    def test_an_entry_tolerates_up_to_its_measure(self):
        self.assertEqual(apply_ratchet([finding(900)], {"file-lines": {"src/a.c": 900}}), ([], 1))
        self.assertEqual(
            apply_ratchet([finding(901)], {"file-lines": {"src/a.c": 900}})[0], [finding(901)]
        )

    def test_an_entry_that_is_too_wide_is_a_finding(self):
        for found in ([finding(850)], []):
            counted, _ = apply_ratchet(found, {"file-lines": {"src/a.c": 900}})
            self.assertEqual([f.rule for f in counted], ["ratchet"])

    def test_shrink_lowers_and_drops(self):
        before = {"file-lines": {"src/a.c": 900, "src/gone.c": 999}, "function-lines": {"x": 70}}
        self.assertEqual(shrink_ratchet([finding(850)], before), {"file-lines": {"src/a.c": 850}})

    def test_growth(self):
        before = {"file-lines": {"src/a.c": 900}}
        self.assertEqual(ratchet_growth(before, {"file-lines": {"src/a.c": 880}}), [])
        after = {"file-lines": {"src/a.c": 901, "src/b.c": 810}}
        self.assertEqual(len(ratchet_growth(before, after)), 2)


class Paths(unittest.TestCase):
    def test_layer_of(self):
        self.assertEqual(layer_of("src/os/linux/os_map.c"), "os")
        self.assertIsNone(layer_of("src/config.h"))
        self.assertIsNone(layer_of("test/unit/base/test_bits.c"))
