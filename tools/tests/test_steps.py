# SPDX-License-Identifier: MIT
import unittest

from steps import EXCERPT_LINES, count, excerpt


class Count(unittest.TestCase):
    def test_a_step_without_counts_is_one_check(self):
        self.assertEqual(count("hello\n", 0), (1, 0, 0))
        self.assertEqual(count("hello\n", 3), (0, 1, 0))

    def test_ctest_with_another_runner_inside(self):
        text = "Ran 10 tests in 1.0s\n\nFAILED (failures=1)\n\n"
        text += " 3/90 Test  #7: a ......***Skipped   0.01 sec\n"
        text += "98% tests passed, 2 tests failed out of 90\n"
        self.assertEqual(count(text, 8), (87, 2, 1))
        self.assertEqual(count("99% tests passed, 1 test failed out of 90\n", 8), (89, 1, 0))

    def test_cargo_adds_its_parts_up(self):
        text = "test result: ok. 5 passed; 0 failed; 1 ignored\n\n"
        text += "test result: ok. 2 passed; 0 failed; 0 ignored\n"
        self.assertEqual(count(text, 0), (7, 0, 1))

    def test_unittest(self):
        self.assertEqual(count("Ran 12 tests in 1.2s\n\nOK (skipped=2)\n", 0), (10, 0, 2))
        text = "Ran 12 tests in 1.2s\n\nFAILED (failures=1, errors=2)\n"
        self.assertEqual(count(text, 1), (9, 3, 0))

    def test_own_summary_is_the_last_one(self):
        text = "1 passed, 0 failed\nRan 1 test in 1s\n\nOK\n31 passed, 2 failed, 1 skipped\n"
        self.assertEqual(count(text, 1), (31, 2, 1))

    def test_bad_status_without_a_failed_count_still_fails(self):
        self.assertEqual(count("5 passed, 0 failed\nSegmentation fault\n", 139), (5, 1, 0))


class Excerpt(unittest.TestCase):
    def test_each_failed_test_of_ctest_and_no_other(self):
        long = "".join(f"line {number}\n" for number in range(100))
        text = " 1/5 Test  #1: good ......   Passed    0.01 sec\n      Start  2: bad\n"
        text += " 2/5 Test  #2: bad ......***Failed    0.50 sec\n" + long
        text += "      Start  3: skipped\n 3/5 Test  #3: skipped ......***Skipped   0.01 sec\n"
        text += " 4/5 Test  #4: slow ......***Timeout 600.01 sec\nsays why\n\n"
        text += " 5/5 Test  #5: fine ......   Passed    0.01 sec\n"
        lines = excerpt(text)
        self.assertEqual(len(lines), EXCERPT_LINES + 2)
        self.assertIn("#2: bad", lines[0])
        self.assertEqual(lines[EXCERPT_LINES - 1], "line 99")
        self.assertIn("#4: slow", lines[EXCERPT_LINES])
        self.assertEqual(lines[-1], "says why")

    def test_any_other_log_by_its_end(self):
        self.assertEqual(excerpt("one\ntwo\n"), ["one", "two"])
        self.assertEqual(excerpt("x\n" * 90 + "error: y\n")[-1], "error: y")


if __name__ == "__main__":
    unittest.main()
