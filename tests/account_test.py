#!/usr/bin/python3
"""Tests account.py, slice.py, tests/lib.sh and deploy/progress.sh, by what they say of runs that are made up.

Run as: account_test.py ROOT."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()
sys.path.insert(0, os.path.join(ROOT, "tests"))

import account  # noqa: E402
import slice as slices  # noqa: E402

JUNIT = """<?xml version="1.0"?>
<testsuite name="x" tests="2">
  <testcase name="slow_test" time="12.5"/>
  <testcase name="quick_test" time="0.5"/>
</testsuite>
"""
DOCUMENT = """# Testing

## Ledger of unsteady tests

| date | commit | test | what it was |
|---|---|---|---|
| 2026-11-01 | abc1234 | `release known_test` | a deadline |

## Another

| 2026-11-01 | abc1234 | `release elsewhere_test` | not of the ledger |
"""


class AccountTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.ledger = os.path.join(folder.name, "cache", "ledger.json")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_account(self, tier="change"):
        return subprocess.run([os.path.join(ROOT, "tests", "account.py"), tier, self.folder], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "RUEDA_TEST_LEDGER": self.ledger})

    def test_stages_and_the_slowest_tests_are_printed(self):
        self.write("stages.tsv", "3\tpackages\n40\tbuild release\n")
        self.write("release-test.xml", JUNIT)
        done = self.run_account()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("40 s  build release", done.stdout)
        self.assertIn("43 s  together", done.stdout)
        self.assertLess(done.stdout.index("release-test: slow_test"), done.stdout.index("release-test: quick_test"))

    def test_who_exceeds_a_budget_fails(self):
        self.write("stages.tsv", "90000\tbuild release\n")
        done = self.run_account()
        self.assertEqual(done.returncode, 1)
        self.assertIn("over: the budget of change, total: 90000 s of ", done.stdout)

    def test_a_budget_counts_the_stages_of_its_name(self):
        stages = account.read_stages(["60\ttest release", "50\ttest asan", "70\tbuild release"])
        budgets = account.read_budgets(["change test 100  # both", "", "change total 1000", "quick test 1"])
        self.assertEqual(list(account.over_budget("change", budgets, stages)),
                         ["the budget of change, test: 110 s of 100 s (tests/budgets.txt)"])

    # A run of 3,316 s once failed on a machine that takes more than twice as long for everything.
    def test_a_slow_machine_may_take_as_many_times_longer(self):
        stages = account.read_stages(["150\ttest release"])
        budgets = account.read_budgets(["change test 100"])
        self.assertEqual(list(account.over_budget("change", budgets, stages, 1.6)), [])
        self.assertEqual(list(account.over_budget("change", budgets, stages, 1.4)),
                         ["the budget of change, test: 150 s of 100 s times 1.40, this machine's slowness (tests/budgets.txt)"])

    def test_slowness_is_the_mean_within_bounds(self):
        self.assertEqual(account.read_slowness([]), 1)
        self.assertEqual(account.read_slowness(["1.5", "2.5"]), 2)
        self.assertEqual(account.read_slowness(["10"]), account.MOST_SLOWNESS)

    # A run within its budgets failed on a fast machine, whose budgets were half as large: waiting takes as long there.
    def test_a_fast_machine_has_the_budgets_of_the_slow_one(self):
        self.assertEqual(account.read_slowness(["0.68", "0.47"]), 1)

    def test_the_machine_is_measured(self):
        done = subprocess.run([os.path.join(ROOT, "tests", "speed.py")], text=True, check=True, stdout=subprocess.PIPE)
        self.assertGreater(float(done.stdout), 0)
        self.write("stages.tsv", "3\tpackages\n")
        self.write("speed.txt", done.stdout)
        self.assertIn(f"took {done.stdout.strip()} times as long", self.run_account().stdout)

    def test_a_broken_budget_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "line 1"):
            account.read_budgets(["change total soon"])

    def test_who_is_unsteady_twice_fails(self):
        self.write("stages.tsv", "1\ttest release\n")
        self.write("unsteady.txt", "release some_test\n")
        once = self.run_account()
        self.assertEqual(once.returncode, 0, once.stdout)
        self.assertRegex(once.stdout, r"\| \d{4}-\d\d-\d\d \| \w+ \| `release some_test` \| \|")
        self.write("unsteady.txt", "")
        self.assertEqual(self.run_account().returncode, 0)
        self.write("unsteady.txt", "release some_test\n")
        twice = self.run_account()
        self.assertEqual(twice.returncode, 1)
        self.assertIn("over: release some_test failed beside others and passed alone, for the second time", twice.stdout)

    def test_after_twenty_runs_it_is_forgotten(self):
        runs = [{"unsteady": ["release some_test"]}] + [{"unsteady": []}] * 19
        self.assertEqual(account.judge_unsteady(["release some_test"], runs, ""), ["release some_test"])
        self.assertEqual(account.judge_unsteady(["release some_test"], [*runs, {"unsteady": []}], ""), [])

    def test_the_ledger_of_the_document_counts(self):
        self.assertEqual(account.rows_of_document(DOCUMENT), {"release known_test"})
        self.assertEqual(account.judge_unsteady(["release known_test", "release elsewhere_test"], [], DOCUMENT),
                         ["release known_test"])

    def test_the_document_has_a_ledger(self):
        with open(os.path.join(ROOT, "docs", "testing.md"), encoding="utf-8") as file:
            self.assertTrue("\n## Ledger of unsteady tests\n" in file.read())

    def test_a_broken_ledger_begins_anew(self):
        os.makedirs(os.path.dirname(self.ledger))
        for text in ("no json", json.dumps({"a": 1}), json.dumps([1]), json.dumps([{"unsteady": 3}])):
            with open(self.ledger, "w", encoding="utf-8") as file:
                file.write(text)
            self.write("stages.tsv", "1\ttest release\n")
            self.assertEqual(self.run_account().returncode, 0)


class SliceTest(unittest.TestCase):

    def test_sixteen_slices_have_everything_once(self):
        items = [f"test{i}" for i in range(100)]
        parts = [slices.every_sixteenth(items, number) for number in range(16)]
        self.assertEqual(sorted(sum(parts, [])), sorted(items))

    def test_lines_go_through(self):
        done = subprocess.run([os.path.join(ROOT, "tests", "slice.py"), "--lines", "1"], input="".join(f"{i}\n" for i in range(40)),
                              text=True, check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, "1\n17\n33\n")

    def test_each_build_has_labels_of_its_own(self):
        self.assertEqual(slices.own_labels("release"), {"long", "longer"})
        self.assertEqual(slices.own_labels("asan"), {"long", "longasan"})


def bash(script, **environment):
    return subprocess.run(["bash", "-c", f"set -euo pipefail; cd {ROOT}; {script}"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment})


class ResultsTest(unittest.TestCase):
    """Tests what tests/lib.sh reads from logs."""

    LOG = "98% tests passed, 1 tests failed out of 54\n\nThe following tests FAILED:\n\t  7 - some_test (Failed)\n"

    def read(self, function):
        with tempfile.NamedTemporaryFile("w") as log:
            log.write(self.LOG)
            log.flush()
            return bash(f". tests/lib.sh; {function} {log.name}").stdout.strip()

    def test_the_result_of_ctest(self):
        self.assertEqual(self.read("read_result"), "1 54")
        self.assertEqual(self.read("read_failures"), "some_test")

    def test_a_script_that_breaks_off_is_a_failure(self):
        with tempfile.NamedTemporaryFile("w") as log:
            done = bash(f". tests/lib.sh; add_results lint {log.name}; echo $failed ${{failures[0]}}")
            self.assertIn("1 lint, which did not come to its end", done.stdout)
            log.write("lint: 3 passed, 1 failed: mypy\n")
            log.flush()
            done = bash(f". tests/lib.sh; add_results lint {log.name}; echo $passed $failed ${{failures[0]}}")
            self.assertIn("3 1 lint: 3 passed, 1 failed: mypy", done.stdout)


class ProgressTest(unittest.TestCase):

    def test_it_says_how_far_ninja_is(self):
        done = bash(". deploy/progress.sh; printf '%s\\n' 'no line of ninja' '[1/20] Building a' '[2/20] Building b' | show_progress")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 of 20 steps done, about 0 min", done.stdout)
        self.assertNotIn("no line of ninja", done.stdout)

    def test_the_end_of_what_is_shown_is_that_of_the_command(self):
        done = bash(". deploy/progress.sh; { echo '[1/2] x'; exit 3; } | show_progress || exit 4")
        self.assertEqual(done.returncode, 4)


if __name__ == "__main__":
    unittest.main()
