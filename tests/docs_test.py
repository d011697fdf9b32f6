#!/usr/bin/python3
"""Fails when the documents say what is not so.

Run as: docs_test.py ROOT BUILD_DIR. Looks at the documents beside README.md and in docs/: links and paths lead somewhere, flags
are in --help of the program built, metrics are in the daemon's list, limits have their values, each decision is in the
index of decisions with its status, and the programs of the guides (fences that say "complete") compile and run under
ruedarun. The first tests plant mistakes.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()
BUILD_DIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
LIBRARY_DIR = os.path.join(BUILD_DIR, "lib")
PROGRAMS = ("ruedad", "ruedarun", "ruedactl", "rueda-bench", "rueda-sim", "rueda-sim-run")
BENCH_COMMANDS = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter",
                  "barrier", "step", "limits", "floor", "models")
# These flags belong to other programs, whose --help is not ours to check.
FLAGS_OF_OTHERS = {"--create", "--hostfile", "--ntasks", "--kill-on-bad-exit", "--quick", "--preset", "--build", "--install",
                   "--prefix", "--component", "--cflags", "--libs", "--no-deps", "--signal", "--nproc",  # torchrun's --nproc_per_node
                   "--gtest", "--write"}  # --gtest_filter; tests/layering_test.py's
# The daemon passes these flags to itself alone, and does not list them.
HIDDEN_FLAGS = {"--gpu-worker"}

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
# Matches a path of the tree, written between backticks or bare in an indented block.
TREE_DIRS = ("daemon", "client", "agent", "bench", "proto", "tests", "docs", "deploy", "cmake")
PATH = re.compile(r"(?<![\w/.@-])((?:" + "|".join(TREE_DIRS) + r")(?:/[\w.*-]+)+/?)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")
METRIC = re.compile(r"\b(rueda_\w+_(?:total|seconds|bytes)|rueda_(?:clients|jobs|queue_depth|stalled_tensors|build_info))\b")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def documents():
    """Returns path and text of every document."""
    found = [name for name in os.listdir(ROOT) if name.endswith(".md")]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.relpath(os.path.join(folder, name), ROOT)
                  for name in names if name.endswith(".md")]
    return [(path, read(path)) for path in sorted(found)]


def anchors(text):
    """Returns the fragments that GitHub makes of a document's headings."""
    titles = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.replace("`", "")).strip().lower().replace(" ", "-")
            for title in titles}


def bad_links(path, text, root=ROOT):
    for target in LINK.findall(FENCE.sub("", text)):
        name, _, fragment = target.partition("#")
        file = os.path.join(root, os.path.dirname(path), name) if name else os.path.join(root, path)
        if not os.path.exists(file):
            yield f"{path}: links to {target}, which is not there"
        elif fragment:
            with open(file, encoding="utf-8") as other:
                if fragment not in anchors(other.read()):
                    yield f"{path}: links to {target}, and {name or path} has no such heading"


def bad_paths(path, text, root=ROOT):
    for name in PATH.findall(text):
        name = name.rstrip("./")
        if "*" in name or re.search(r"/[A-Z]+_", name):
            continue
        if not any(os.path.exists(os.path.join(root, name + end)) for end in ("", ".h", ".cc")):
            yield f"{path}: names {name}, which is not there"


def bad_flags(path, text, known):
    for flag in sorted(set(FLAG.findall(text)) - known):
        yield f"{path}: names {flag}, which no program has"


def bad_metrics(path, text, known):
    for name in sorted(set(METRIC.findall(text))):
        if re.sub(r"_(bucket|sum|count)$", "", name) not in known:
            yield f"{path}: names metric {name}, which the daemon does not have"


def complete_programs(text):
    """Returns language and source of the fences that are whole programs."""
    return [(info.split()[0], source) for info, source in FENCE.findall(text)
            if info.split()[1:] == ["complete"]]


RULES = {f"L{i}" for i in range(1, 14)} | {f"R{i}" for i in range(1, 7)}
NAMED_TESTS = re.compile(r"`(tests/[\w/]+\.(?:cc|py))`: ((?:`\w+`(?:, )?)+)")


def rows_of_rules(text):
    """Returns rule and row of the table in protocol.md."""
    return re.findall(r"(?m)^\| ([LR]\d+) (.*)$", text)


def bad_rules(text, scenarios, checkers):
    """Yields what is wrong with the rules of `text`; `checkers` is the source of the checkers."""
    rows = rows_of_rules(text)
    for rule in sorted(RULES - {rule for rule, _ in rows}):
        yield f"{rule} is not there"
    for rule, row in rows:
        if "no scenario can show it" in row or "| not yet" in row:
            continue
        if f"`tests/sim/scenarios/{rule}-" not in row:
            yield f"{rule} has no scenario"
        named = re.search(r"checkers? ((?:`[^`]+`(?:, | and )?)+)", row)
        if not named:
            yield f"{rule} has no checker"
        for name in re.findall("`([^`]+)`", named.group(1) if named else ""):
            if f'"{name}: ' not in checkers:
                yield f"{rule} names checker {name}, which is not there"
    for name in scenarios:
        if not re.search(rf"[/`]{re.escape(name)}`", text):
            yield f"scenario {name} is not named"


def bad_tests(path, text, root=ROOT):
    for file, names in NAMED_TESTS.findall(text):
        with open(os.path.join(root, file), encoding="utf-8") as source:
            known = source.read()
        for name in re.findall(r"\w+", names):
            if name not in known:
                yield f"{path}: names test {name}, which {file} does not have"



ATTACKS = 15


def bad_attacks(text, root=ROOT):
    """Yields what is wrong with attacks.md: each attack is numbered, each row of its table names tests, and each of those is a case."""
    parts = re.findall(r"(?ms)^## (\d+)\. [^\n]*\n(.*?)(?=^## |\Z)", text)
    if [int(number) for number, _ in parts] != list(range(1, ATTACKS + 1)):
        yield f"the attacks are not numbered from 1 to {ATTACKS}"
    for number, part in parts:
        rows = re.findall(r"(?m)^\| (?!-)(.*) \|$", part)[1:]
        if not rows:
            yield f"attack {number} has no rows"
        for row in rows:
            named = NAMED_TESTS.findall(row.rsplit(" | ", 1)[-1])
            if not named:
                yield f"attack {number}: no test in the row {row}"
            for file, names in named:
                with open(os.path.join(root, file), encoding="utf-8") as source:
                    known = source.read()
                for name in re.findall(r"\w+", names):
                    case = rf"\bTEST\w*\(\s*(?:\w+,\s*)?{name}\b|\bdef {name}\(|\bint {name}\("
                    if not re.search(case, known):
                        yield f"attack {number}: {name} is no case of {file}"


DECISION = re.compile(r"(\d{4})-[\w-]+\.md$")
INDEX_ROW = re.compile(r"(?m)^\| (\d+) \| \[([^\]]*)\]\(([^)]*)\) \|.*\| ([^|]*) \|$")


def bad_decisions(index, files):
    """Yields what is wrong with decisions: `files` has each decision's name and text, and `index` is README.md beside them."""
    rows = {name: (int(number), title, status) for number, title, name, status in INDEX_ROW.findall(index)}
    gone = {int(number) for number in re.findall(r"(?m)^\| (\d+) \| [^|[]+ \|$", index)}
    for name in sorted(rows.keys() - files.keys()):
        yield f"the index has {name}, which is not there"
    numbers = {name: int(DECISION.match(name).group(1)) for name in files if DECISION.match(name)}
    for name in sorted(files.keys() - numbers.keys()):
        yield f"{name}: is not named as decisions are, by four digits and words"
    for name, number in sorted(numbers.items()):
        text = files[name]
        head = re.match(r"# (\d+)\. (.+)\n\n\*\*Status\.\*\* (.+)\n", text)
        if not head or int(head.group(1)) != number:
            yield f"{name}: does not begin with '# {number}. Title' and its status"
            continue
        status = re.sub(r"\[(\d+)\]\([^)]*\)", r"\1", head.group(3)).split(". ")[0].rstrip(".")
        if not status.startswith(("In force", "Replaced by")):
            yield f"{name}: is neither in force nor replaced"
        if rows.get(name) != (number, head.group(2), status[0].lower() + status[1:]):
            yield f"{name}: the index does not have its number, title and status"
    used = set(numbers.values())
    for number in sorted(set(range(1, max(used | gone, default=0) + 1)) - used - gone):
        yield f"number {number} has neither a file nor a word in the index"
    for number in sorted(used & gone):
        yield f"number {number} has a file, and the index says that it has none"


DECISION_LINK = re.compile(r"\[(?:[Dd]ecisions?\s+)?(\d+)\]\((?:[\w./]*/)?(\d{4})-")
CITED_DECISION = re.compile(r"\b[Dd]ecisions?[ /](\d+)")
CODE_DIRS = ("agent", "bench", "client", "daemon", "deploy", "proto", "tests")
CODE_SUFFIXES = (".c", ".cc", ".cmake", ".cu", ".h", ".hpp", ".proto", ".py", ".sh", "CMakeLists.txt")


def bad_citations(path, text, numbers):
    """Yields decisions that a document calls by another's number, or that code cites and that do not exist."""
    if path.endswith(".md"):
        cited = [(int(shown), int(file)) for shown, file in DECISION_LINK.findall(text)]
    else:
        cited = [(int(number), int(number)) for number in CITED_DECISION.findall(text)]
    for shown, number in sorted(set(cited)):
        if shown != number:
            yield f"{path}: calls decision {number} {shown}"
        elif number not in numbers:
            yield f"{path}: cites decision {number}, which is not there"


def sources():
    """Yields path and text of what is compiled or run."""
    for room in CODE_DIRS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in sorted(names):
                if name.endswith(CODE_SUFFIXES):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    yield path, read(path)


def is_built():
    return (all(os.access(os.path.join(BUILD_DIR, "bin", name), os.X_OK) for name in PROGRAMS)
            and os.path.exists(os.path.join(LIBRARY_DIR, "librueda.so")))


needs_build = unittest.skipUnless(is_built(), f"{BUILD_DIR}/bin lacks one of {', '.join(PROGRAMS)}")


def needs_module(name):
    spec = importlib.util.find_spec(name)
    is_installed = spec is not None and spec.origin is not None  # tests/torch, a folder beside this file, has no origin
    return unittest.skipUnless(is_installed, f"{name} is not installed")


def help_of(*command):
    run = subprocess.run([os.path.join(BUILD_DIR, "bin", command[0]), *command[1:], "--help"], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=20)
    return run.stdout


def known_metrics():
    text = read("daemon", "observe", "metrics.cc")
    return set(re.findall(r'"(rueda_\w+)"', text))


class PlantedMistakes(unittest.TestCase):
    def test_a_dead_link_and_a_heading_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "b.md"), "w", encoding="utf-8") as file:
                file.write("# What is there\n")
            self.assertEqual(list(bad_links("a.md", "[x](b.md#what-is-there)\n", root)), [])
            self.assertEqual(len(list(bad_links("a.md", "[x](b.md#else) [y](c.md)\n", root))), 2)

    def test_a_path_that_is_not_there(self):
        self.assertEqual(list(bad_paths("a.md", "`daemon/core/job/job.cc`, daemon/core and docs/*.md")), [])
        self.assertEqual(len(list(bad_paths("a.md", "see `daemon/core/sheep.cc`"))), 1)

    def test_a_flag_and_a_metric_that_do_not_exist(self):
        self.assertEqual(len(list(bad_flags("a.md", "give --np and --cheese", {"--np"}))), 1)
        self.assertEqual(len(list(bad_metrics("a.md", "rueda_jobs rueda_sheep_total", {"rueda_jobs"}))), 1)

    def test_complete_programs_are_found(self):
        text = "```python complete\nx = 1\n```\n\n```python\ny\n```\n"
        self.assertEqual(complete_programs(text), [("python", "x = 1\n")])


    def test_a_rule_without_a_scenario_or_checker_is_found(self):
        row = "| L1 it | kept | `daemon/core` | `tests/sim/scenarios/L1-a.txt`; checker `L1` |"
        text = "\n".join([row] + [f"| {rule} it | not yet | | |" for rule in RULES - {"L1"}])
        self.assertEqual(list(bad_rules(text, ["L1-a.txt"], 'violated("L1: no")')), [])
        self.assertEqual(list(bad_rules(text.replace("L1-a", "L2-a"), [], '"L1: "')), ["L1 has no scenario"])
        self.assertEqual(list(bad_rules(text, ["a.txt", "L1-a.txt"], '"L2: "')),
                         ["L1 names checker L1, which is not there", "scenario a.txt is not named"])
        self.assertEqual(list(bad_rules(text.replace("; checker `L1`", ""), [], "")), ["L1 has no checker"])
        self.assertEqual(list(bad_rules(text.replace("| L1", "| L0"), [], '"L1: "'))[0], "L1 is not there")

    def test_a_decision_that_is_not_in_the_index_is_found(self):
        files = {"0001-a.md": "# 1. A\n\n**Status.** In force; amended by [3](0003-c.md). Not yet tried.\n",
                 "0003-c.md": "# 3. C\n\n**Status.** In force.\n"}
        rows = ["| 1 | [A](0001-a.md) | It is. | in force; amended by 3 |", "| 2 | merged into 1 |",
                "| 3 | [C](0003-c.md) | It is. | in force |"]
        self.assertEqual(list(bad_decisions("\n".join(rows), files)), [])

        def found(*rows, files=files):
            return list(bad_decisions("\n".join(rows), files))
        no_row = "0003-c.md: the index does not have its number, title and status"
        self.assertEqual(found(*rows[:2]), [no_row])
        self.assertEqual(found(*rows[:2], rows[2].replace("[C]", "[D]")), [no_row])
        self.assertEqual(found(*rows[:2], rows[2].replace("in force", "replaced by 1")), [no_row])
        self.assertEqual(found(rows[0], rows[2]), ["number 2 has neither a file nor a word in the index"])
        self.assertEqual(found(*rows, "| 4 | [D](0004-d.md) | It is. | in force |"),
                         ["the index has 0004-d.md, which is not there"])
        self.assertEqual(found(*rows, "| 3 | never used |"), ["number 3 has a file, and the index says that it has none"])
        self.assertEqual(found(*rows, files={**files, "0003-c.md": "# 3. C\n\nIt is.\n"}),
                         ["0003-c.md: does not begin with '# 3. Title' and its status"])
        self.assertEqual(found(*rows, files={**files, "notes.md": "# Notes\n"}),
                         ["notes.md: is not named as decisions are, by four digits and words"])

    def test_a_decision_that_is_not_there_is_found_where_it_is_cited(self):
        self.assertEqual(list(bad_citations("a.md", "[decision 1](decisions/0001-a.md), [1](0001-a.md)", {1})), [])
        self.assertEqual(list(bad_citations("a.md", "[decision 2](decisions/0001-a.md)", {1})), ["a.md: calls decision 1 2"])
        self.assertEqual(list(bad_citations("a.h", "// See " "decisions/0001-a.md, and decision" " 1.", {1})), [])
        self.assertEqual(list(bad_citations("a.h", "// Decision" " 2.", {1})), ["a.h: cites decision 2, which is not there"])

    def test_an_attack_without_a_test_is_found(self):
        row = "| a | b | `tests/docs_test.py`: `test_a_dead_link_and_a_heading_that_is_not_there` |\n"
        page = "".join(f"## {number}. It\n\n| attack | holds | test |\n|---|---|---|\n{row}\n" for number in range(1, ATTACKS + 1))
        self.assertEqual(list(bad_attacks(page)), [])
        self.assertEqual(list(bad_attacks(page.replace("## 3.", "## 4."))), [f"the attacks are not numbered from 1 to {ATTACKS}"])
        self.assertEqual(list(bad_attacks(page.replace(row, "| a | b | nothing |\n", 1))), ["attack 1: no test in the row a | b | nothing"])
        self.assertEqual(list(bad_attacks(page.replace("`test_a_dead_link_and_a", "`a_dead_link_and_a", 1))),
                         ["attack 1: a_dead_link_and_a_heading_that_is_not_there is no case of tests/docs_test.py"])
        self.assertEqual(list(bad_attacks(page.replace(row, "", 1))), ["attack 1 has no rows"])

    def test_a_test_that_is_not_there_is_found(self):
        name = "Unheard" + "Of"
        self.assertEqual(list(bad_tests("x.md", f"`tests/docs_test.py`: `Planted`, `{name}`")),
                         [f"x.md: names test {name}, which tests/docs_test.py does not have"])


class Documents(unittest.TestCase):
    maxDiff = None

    def assert_none(self, found):
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_links_lead_somewhere(self):
        self.assert_none([line for path, text in documents() for line in bad_links(path, text)])

    def test_paths_exist(self):
        self.assert_none([line for path, text in documents() for line in bad_paths(path, text)])

    def test_tests_exist(self):
        self.assert_none([line for path, text in documents() for line in bad_tests(path, text)])

    def test_attacks_have_their_tests(self):
        self.assert_none(list(bad_attacks(read("docs", "attacks.md"))))

    def test_rules_have_their_scenarios_and_checkers(self):
        sim = os.path.join(ROOT, "tests", "sim")
        checkers = "".join(read(folder, name) for folder, _, names in os.walk(sim) for name in names if name.endswith(".cc"))
        scenarios = sorted(os.listdir(os.path.join(sim, "scenarios")))
        self.assert_none(list(bad_rules(read("docs", "protocol.md"), scenarios, checkers)))

    def test_every_decision_is_in_the_index(self):
        folder = os.path.join(ROOT, "docs", "decisions")
        files = {name: read(folder, name) for name in os.listdir(folder) if name != "README.md"}
        self.assertGreater(len(files), 40)
        self.assert_none(list(bad_decisions(read(folder, "README.md"), files)))

    def test_decisions_are_cited_by_their_numbers(self):
        names = os.listdir(os.path.join(ROOT, "docs", "decisions"))
        numbers = {int(DECISION.match(name).group(1)) for name in names if DECISION.match(name)}
        self.assert_none([line for path, text in [*documents(), *sources()] for line in bad_citations(path, text, numbers)])

    @needs_build
    def test_flags_exist(self):
        text = "".join(help_of(program) for program in PROGRAMS)
        text += "".join(help_of("rueda-bench", command) for command in BENCH_COMMANDS)
        text += "".join(help_of("ruedactl", command) for command in ("jobs", "end"))
        text += "".join(help_of("rueda-gpu-job-bench", command) for command in ("rate", "latency", "growth"))
        for tool in ("autotune.py", "compare.py", "growth.py", "jitter.py", "scale.py", "tensorflow_training.py", "train.py"):
            text += subprocess.run([sys.executable, os.path.join(ROOT, "bench", tool), "--help"],
                                   stdout=subprocess.PIPE, text=True, check=True, timeout=20).stdout
        for command in ("run", "report", "costs", "validate", "predict"):
            text += subprocess.run([sys.executable, os.path.join(ROOT, "bench", "characterise.py"), command, "--help"],
                                   stdout=subprocess.PIPE, text=True, check=True, timeout=20).stdout
        for command in ("start", "stop", "plot"):
            text += help_of("ruedactl", "trace", command)
        for command in ("init", "issue", "install", "install-list", "show", "revoke"):
            text += help_of("ruedactl", "certs", command)
        text += read("deploy", "packages.sh") + read("tests", "run.sh")
        text += read("client", "python", "examples", "torch_parameter_server.py")
        known = set(FLAG.findall(text)) | FLAGS_OF_OTHERS | HIDDEN_FLAGS
        self.assert_none([line for path, text in documents() for line in bad_flags(path, text, known)])

    @needs_build
    def test_every_flag_of_the_daemon_is_in_operations(self):
        text = read("docs", "operations.md")
        missing = set(FLAG.findall(help_of("ruedad"))) - set(FLAG.findall(text))
        self.assertEqual(missing - {"--help", "--version"}, set())

    def test_metrics_exist(self):
        known = known_metrics()
        self.assertGreater(len(known), 10)
        self.assert_none([line for path, text in documents() for line in bad_metrics(path, text, known)])

    def test_limits_have_their_values(self):
        """operations.md lists each constant of limits.h with its value."""
        table = dict(re.findall(r"^\| `(kMax\w+)` \| ([\d,]+) \|", read("docs", "operations.md"),
                                re.MULTILINE))
        values = re.findall(r"constexpr \w+ (kMax\w+) = (.*);", read("daemon", "base", "limits.h"))
        self.assertGreater(len(values), 10)
        for name, expression in values:
            digits = expression.replace("'", "")
            number = eval(re.sub(r"size_t\{(\d+)\}|(\d+)u", r"\1\2", digits))  # literals and shifts
            self.assertEqual(table.get(name, "").replace(",", ""), str(number), name)

    def test_versions_and_magic_numbers_are_those_of_the_code(self):
        """A version is raised in one file, and described in another."""
        def constant(name, *path):
            return re.search(rf"\b{name}(?: =)? (\w+?)u?\b", read(*path)).group(1)
        protocol = read("docs", "protocol.md")
        wire = constant("kWireVersion", "daemon", "transport", "frame.h")
        self.assertEqual(re.findall(r"(?m)^\| \d+ \| 1 \| `version` \| (\d+)", protocol), [wire] * 3)
        magics = [constant("kFrameMagic", "daemon", "transport", "frame.h")]
        magics += [constant(name, "daemon", "transport", "tcp", "hello.h") for name in ("kHelloMagic", "kHelloReplyMagic")]
        self.assertEqual(re.findall(r"(?m)^\| 0 \| \d \| `magic` \| (\w+)", protocol), magics)
        control = constant("kProtocolVersion", "daemon", "service", "links", "protocol_version.h")
        self.assertIn(f"`Hello`: protocol version ({control})", protocol)
        abi = constant("RUEDA_ABI_VERSION", "client", "abi", "rueda_abi.h")
        self.assertIn(f"`RUEDA_ABI_VERSION`, which is {abi}.", read("docs", "abi.md"))
        release = re.search(r"VERSION (\d+\.\d+\.\d+)", read("CMakeLists.txt")).group(1)
        for path in (("deploy", "kubernetes", "daemonset.yaml"), ("deploy", "docker", "Dockerfile")):
            tags = set(re.findall(r"rueda/ruedad:(\S+)", read(*path)))
            self.assertEqual(tags, {release}, path)

    def test_error_codes_are_all_listed(self):
        codes = re.findall(r"(RUEDA_ERR_\w+) = -(\d+)", read("client", "include", "rueda", "rueda.h"))
        self.assertGreater(len(codes), 10)
        text = read("docs", "operations.md")
        for name, number in codes:
            self.assertRegex(text, rf"(?m)^\| -{number} \| `{name}` \|")


@needs_build
class Programs(unittest.TestCase):
    """Tests the guides' programs, with four ranks on two nodes each."""

    def run_all(self, document, languages, at_least=4):
        programs = complete_programs(read("docs", document))
        self.assertGreaterEqual(len(programs), at_least)
        with tempfile.TemporaryDirectory() as folder:
            for number, (language, source) in enumerate(programs, 1):
                with self.subTest(document=document, program=number, language=language):
                    self.assertIn(language, languages)
                    command = languages[language](folder, f"program{number}", source)
                    self.run_ranks(command)

    def run_ranks(self, command):
        environment = dict(os.environ, RUEDA_LIBRARY=os.path.join(LIBRARY_DIR, "librueda.so"),
                           LD_LIBRARY_PATH=LIBRARY_DIR, PYTHONDONTWRITEBYTECODE="1",
                           PYTHONPATH=os.path.join(ROOT, "client", "python"))
        environment.pop("RUEDA_SOCKET", None)
        ruedarun = os.path.join(BUILD_DIR, "bin", "ruedarun")
        run = subprocess.run([ruedarun, "-np", "4", "--virtual-nodes", "2", *command], env=environment,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                             timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout)

    @staticmethod
    def write_python(folder, name, source):
        path = os.path.join(folder, name + ".py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        return [sys.executable, path]

    @needs_module("numpy")
    def test_python(self):
        self.run_all("python.md", {"python": self.write_python})

    @needs_module("torch")
    def test_horovod(self):
        self.run_all("horovod.md", {"python": self.write_python}, at_least=1)

    def test_cpp(self):
        def compile_with(compiler, standard, suffix):
            def build(folder, name, source):
                path = os.path.join(folder, name + suffix)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(source)
                program = os.path.join(folder, name)
                run = subprocess.run(
                    [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror",
                     "-I" + os.path.join(ROOT, "client", "include"), path, "-L" + LIBRARY_DIR, "-lrueda",
                     "-o", program],
                    text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
                self.assertEqual(run.returncode, 0, run.stdout)
                return [program]
            return build

        if not shutil.which("g++"):
            self.skipTest("g++ is not installed")
        self.run_all("cpp.md", {"cpp": compile_with("g++", "c++20", ".cc"),
                                "c": compile_with("gcc", "c11", ".c")})


if __name__ == "__main__":
    unittest.main()
