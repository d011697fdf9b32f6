#!/usr/bin/python3
"""The account of a test run: what each stage took, the slowest tests, whether the tier kept within its budget, and which tests
have failed beside others and passed alone.

    account.py TIER FOLDER

FOLDER holds stages.tsv (a line a stage: seconds, a tab, its name), the junit files that ctest wrote (*.xml), unsteady.txt (a
line for each test that failed and then passed: build, a blank, name) and speed.txt (what speed.py printed at the begin and at the
end). Prints the account, and at its end one line "over: WHY" for
each reason to fail. Exits with 1 if there is one.

Budgets are in tests/budgets.txt; on a machine that takes longer than the one they were written on, they are as many times larger,
up to three times. On one that takes less they stay: much of a run is waiting, which no fast processor shortens. The ledger of unsteady tests is a file of the machine (RUEDA_TEST_LEDGER, or
rueda/test-ledger.json in the user's cache folder) and the table in docs/testing.md: who is in either within the last 20 runs, and
fails again, fails for good.
"""

import datetime
import glob
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SLOWEST = 15
REMEMBERED_RUNS = 20
MOST_SLOWNESS = 3.0


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def read_budgets(lines):
    """Returns {(tier, what): seconds} from lines "tier what seconds"; # begins a comment."""
    budgets = {}
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not words[2].isdigit():
            raise ValueError(f"line {number} of the budgets is not 'TIER WHAT SECONDS': {line}")
        budgets[words[0], words[1]] = int(words[2])
    return budgets


def read_stages(lines):
    """Returns [(seconds, name)], in order."""
    return [(int(seconds), name) for seconds, name in (line.split("\t", 1) for line in lines)]


def read_tests(paths):
    """Returns [(seconds, build, test)] from ctest's junit files BUILD-STAGE[-again].xml."""
    tests = []
    for path in paths:
        build = os.path.splitext(os.path.basename(path))[0]
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            tests.append((float(case.get("time", 0)), build, case.get("name")))
    return tests


def read_slowness(lines):
    """Returns how many times longer than in the budgets something may take: the mean of what speed.py printed, from 1 to the most."""
    multiples = [float(line) for line in lines]
    if not multiples:
        return 1.0
    return min(max(sum(multiples) / len(multiples), 1.0), MOST_SLOWNESS)


def over_budget(tier, budgets, stages, slowness=1.0):
    """Yields a sentence for each budget of the tier that the stages together have exceeded. `total` counts all stages, and
    another word those whose names begin with it. A machine of that slowness may take as many times longer."""
    for (of, what), limit_s in sorted(budgets.items()):
        if of != tier:
            continue
        took_s = sum(seconds for seconds, name in stages if what == "total" or name.split()[0] == what)
        if took_s > limit_s * slowness:
            allowed = f"{limit_s} s" + (f" times {slowness:.2f}, this machine's slowness" if slowness != 1 else "")
            yield f"the budget of {tier}, {what}: {took_s} s of {allowed} (tests/budgets.txt)"


def rows_of_document(text):
    """Returns the tests in the ledger of docs/testing.md: {"build name"}."""
    found = re.search(r"^## Ledger of unsteady tests$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| [\d-]+ \| \S+ \| `([^`]+)` \|", found.group(1) if found else "", re.MULTILINE)
    return set(rows)


def judge_unsteady(unsteady, ledger, document):
    """Returns which of these tests were unsteady before: in the machine's ledger, within the last runs, or in the document."""
    before = rows_of_document(document).union(*(run["unsteady"] for run in ledger[-REMEMBERED_RUNS:]))
    return [test for test in unsteady if test in before]


def ledger_path():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("RUEDA_TEST_LEDGER") or os.path.join(cache, "rueda", "test-ledger.json")


def read_ledger(path):
    try:
        with open(path, encoding="utf-8") as file:
            ledger = json.load(file)
        return [run for run in ledger if isinstance(run.get("unsteady"), list)]
    except (OSError, ValueError, AttributeError, TypeError):
        return []  # there is no ledger yet, or it is not ours: it begins anew


def write_ledger(path, ledger):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(ledger[-REMEMBERED_RUNS:], file, indent=1)
        os.replace(path + ".new", path)
    except OSError as error:
        print(f"the ledger of unsteady tests is not kept: {error}")


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return done.stdout.strip() or "unknown"


def print_account(stages, tests):
    print("\nWhat each stage took:")
    for seconds, name in stages:
        print(f"{seconds:6d} s  {name}")
    print(f"{sum(seconds for seconds, _ in stages):6d} s  together")
    print(f"\nThe {SLOWEST} slowest of {len(tests)} tests:")
    for seconds, build, name in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{seconds:6.1f} s  {build}: {name}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tier, folder = sys.argv[1:]
    stages = read_stages(read_lines(os.path.join(folder, "stages.tsv")))
    print_account(stages, read_tests(sorted(glob.glob(os.path.join(folder, "*.xml")))))

    speed = read_lines(os.path.join(folder, "speed.txt"))
    print(f"\nThis machine took {' and '.join(speed) or '1'} times as long as that of the budgets (tests/speed.py).")
    reasons = list(over_budget(tier, read_budgets(read_lines(os.path.join(ROOT, "tests", "budgets.txt"))), stages,
                               read_slowness(speed)))
    unsteady = read_lines(os.path.join(folder, "unsteady.txt"))
    path, today, head = ledger_path(), datetime.date.today().isoformat(), commit()
    ledger = read_ledger(path)
    document = "\n".join(read_lines(os.path.join(ROOT, "docs", "testing.md")))
    again = judge_unsteady(unsteady, ledger, document)
    reasons += [f"{test} failed beside others and passed alone, for the second time within {REMEMBERED_RUNS} runs"
                for test in again]
    if unsteady:
        print("\nFailed beside others, passed alone. Lines for the ledger in docs/testing.md:")
        for test in unsteady:
            print(f"| {today} | {head} | `{test}` | |")
    write_ledger(path, [*ledger, {"commit": head, "date": today, "unsteady": unsteady}])
    for reason in reasons:
        print(f"over: {reason}")
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
