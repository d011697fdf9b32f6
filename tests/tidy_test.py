#!/usr/bin/python3
"""Fails when a file, a class or a folder of the tree is not tidy: the functions check_* say what that means.

Run as: tidy_test.py ROOT. The first half of the tests plants untidy text and expects it to be found.
"""

import ast
import collections
import os
import re
import shutil
import subprocess
import sys
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()

SKIPPED_DIRS = {".git", ".cache", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache"}
SKIPPED_FILES = {"LICENSE", "compile_commands.json"}
CODE_SUFFIXES = (".cc", ".h", ".hpp", ".c", ".cu", ".py")
HEADER_SUFFIXES = (".h", ".hpp")
BINARY_SUFFIXES = (".png", ".pyc", ".gz", ".npz", ".bin", ".so")
MAX_LINES = 1000
MAX_FUNCTION_LINES = 70
MAX_FOLDER_FILES = 30
# Lists, one line for each thing: to cut them would help nobody.
LONG_FUNCTIONS = {"agent/cli/options.cc:add_flags", "daemon/config.cc:define_work", "daemon/observe/metrics.cc:make_daemon_metrics",
                  "tests/sim/setup/setup.cc:lines"}
# These classes are still to be taken apart. An entry that is not needed any more fails.
SPREAD_CLASSES: set[str] = set()

MAX_FRAGMENTS = 0.03  # of the comments of C++ outside tests, as a share
# A comment whose first sentence begins with one of these words and has no verb, or but that of the clause which the word
# begins, has no subject. It is a rough measure, and so a share: "Of a rank: its tensors." is found, "Its tensors." is not.
CLAUSE_STARTS = {"how", "what", "when", "where", "whether", "which", "who", "whose", "until", "since", "while", "once", "because"}
PHRASE_STARTS = {"also", "and", "as", "at", "behind", "beside", "beyond", "by", "false", "for", "from", "in", "likewise", "more", "none",
                 "not", "nothing", "of", "on", "only", "or", "same", "the same", "to", "told", "true", "with", "without"}
VERB = re.compile(r"""\b(is|are|was|were|be|has|have|had|do|does|did|can|cannot|may|might|must|shall|should|will|would|
    (?:add|allow|answer|ask|begin|belong|bring|call|change|close|come|contain|cost|count|describe|end|expect|fail|find|get|give|go|
    happen|hear|hold|keep|know|lack|last|lie|live|look|make|mean|name|need|own|pass|read|receive|remain|return|run|say|see|send|
    serve|set|show|stand|start|stay|stop|take|tell|turn|use|wait|want|work|write)(?:s|es)?|begun|came|went|said|goes|lies)\b""",
                  re.VERBOSE)

# The words are written in two pieces, so that this file passes its own rules.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HAC" r"K)\b")
MACHINE_PATHS = re.compile(r"/wo" r"rk/|/ro" r"ot/|/tmp" r"/b-|\.\./sha" r"red/")
CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
LOCKED_ROOMS = ("daemon/", "agent/", "client/")  # clang checks the mutexes of these rooms
STD_LOCK = re.compile(r"\bstd::(\w*mutex|condition_variable\w*|lock_guard|\w+_lock|call_once|once_flag)\b")
MUTEX_FIELD = re.compile(r"^ +(?:mutable )?Mutex (\w+);", re.MULTILINE)
USING_STD = re.compile(r"^\s*using namespace std\b", re.MULTILINE)
EARLY_END = re.compile(r"\|\s*(head\b|grep\s+(?:-\S+\s+)*-\w*[qm])")
STRICT_SHELL = re.compile(r"^set -eu(o pipefail)?$", re.MULTILINE)
MARKDOWN_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def is_shell(path, text):
    return path.endswith(".sh") or bool(re.match(r"#!\S*[/ ](ba)?sh\b", text))


def has_header_comment(text):
    body = re.sub(r"\A#!.*\n", "", text).lstrip()
    return body.startswith(("//", "/*"))


def check_words(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((UNFINISHED, "marks unfinished work"),
                              (MACHINE_PATHS, "names a path of one machine")):
            match = pattern.search(line)
            if match:
                yield f"{path}:{number}: '{match.group()}' {what}"


def check_blanks(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield f"{path}:{number}: a tab"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end of the line"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield f"{path}: must end in one newline"
    if CONFLICT.search(text):
        yield f"{path}: a conflict marker"


def check_code(path, text):
    lines = text.count("\n")
    if path.endswith(CODE_SUFFIXES) and lines > MAX_LINES:
        yield f"{path}: {lines} lines; split it below {MAX_LINES}"
    if USING_STD.search(text) and not path.endswith(".py"):
        yield f"{path}: 'using namespace std'"


def check_mutexes(path, text):
    """A mutex is one that clang can check (daemon/base/mutex.h), and some field says that it is guarded by it.

    A field may say so by another name, if a function gives the mutex out by that name (RUEDA_RETURN_CAPABILITY).
    """
    if not path.startswith(LOCKED_ROOMS) or path == "daemon/base/mutex.h":
        return
    if not path.endswith((".cc", ".h", ".hpp")):
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = STD_LOCK.search(line.split("//")[0])
        if match:
            yield f"{path}:{number}: clang cannot check '{match.group()}'; daemon/base/mutex.h has what it can check"
    for match in MUTEX_FIELD.finditer(text):
        names = [match.group(1), *re.findall(rf"RUEDA_RETURN_CAPABILITY\((\w+)\) {{ return {match.group(1)}; }}", text)]
        if not re.search(rf"RUEDA_GUARDED_BY\((?:\w+\.)*(?:{'|'.join(names)})\)", text):
            yield f"{path}: {match.group(1)} guards nothing; say RUEDA_GUARDED_BY({match.group(1)}) of the fields that it guards"


def long_functions(path, text):
    """Yields (name, lines) of each function that is too long. A C++ function counts if it begins and ends at the left margin."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    yield node.name, lines
    if not path.endswith((".cc", ".h", ".hpp", ".cu")):
        return
    name, began, has_body = None, 0, False
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"(?!namespace|class|struct|enum|union|extern \"C\" \{|using|typedef|[A-Z_]+\()[A-Za-z_].*?([~\w]+)\(", line)
        if match and name is None:
            name, began, has_body = match.group(1), number, False
        has_body = has_body or line.endswith("{")
        if line.startswith("}"):
            if name and number - began + 1 > MAX_FUNCTION_LINES:
                yield name, number - began + 1
            name = None
        elif not has_body and line.endswith((";", "}")):
            name = None  # it was a declaration, or a function of one line


def check_functions(path, text):
    for name, lines in long_functions(path, text):
        if f"{path}:{name}" not in LONG_FUNCTIONS:
            yield f"{path}: {name} has {lines} lines; a function has {MAX_FUNCTION_LINES} at most"


def spread_classes(files):
    """Returns {folder/Class: its sources} of classes whose members stand in several sources. `files` has (path, text)."""
    member = re.compile(r"^[A-Za-z_][^\n;{}#]*?\b([A-Z][A-Za-z]+)::~?[a-z_A-Z]+\(", re.MULTILINE)
    sources = collections.defaultdict(set)
    for path, text in files:
        if path.endswith(".cc") and not path.startswith(("tests/", "bench/")):
            for match in member.finditer(text):
                sources[f"{os.path.dirname(path)}/{match.group(1)}"].add(path)
    return {name: sorted(paths) for name, paths in sources.items() if len(paths) > 1}


def comments_of(text):
    """(line, text) of each comment of C++ that has lines of its own."""
    block, began = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        match = re.match(r"\s*//+ ?(.*)", line)
        if match:
            began = began if block else number
            block.append(match.group(1))
        elif block:
            yield began, " ".join(block)
            block = []


def is_fragment(comment):
    sentence = re.split(r"[.:;](?: |$)", comment.lower())[0]
    words = re.findall(r"[a-z]+", sentence)
    if not words or sentence.startswith("---"):  # a title
        return False
    verbs = len(VERB.findall(sentence))
    return words[0] in CLAUSE_STARTS and verbs < 2 or " ".join(words[:2]) in PHRASE_STARTS and verbs < 1 or (
        words[0] in PHRASE_STARTS and verbs < 1)


def fragments(files):
    """([path:line: text] of comments that are fragments, how many comments there are). `files`: (path, text)."""
    found, count = [], 0
    for path, text in files:
        if path.endswith((".cc", ".h", ".hpp", ".cu", ".cuh")) and not path.startswith("tests/"):
            for line, comment in comments_of(text):
                count += 1
                if is_fragment(comment):
                    found.append(f"{path}:{line}: {comment[:80]}")
    return found, count


def crowded_folders(paths):
    """Returns {folder: files of code in it} of folders with too many."""
    counts = collections.Counter(os.path.dirname(path) for path in paths if path.endswith(CODE_SUFFIXES))
    return {folder: count for folder, count in counts.items() if count > MAX_FOLDER_FILES}


def check_header_comment(path, text, read):
    """Checks that headers, and sources of the daemon without a header of their own, say what they are for."""
    if path.endswith(HEADER_SUFFIXES) and not has_header_comment(text):
        yield f"{path}: a header starts with a comment that says what it is for"
    if path.startswith("daemon/") and path.endswith(".cc"):
        # A room's door may be one folder up: reduce/kernels.h for reduce/cpu/kernels.cc.
        folder, name = os.path.split(path[:-3] + ".h")
        headers = [read(path[:-3] + ".h"), read(os.path.join(os.path.dirname(folder), name))]
        if not any(has_header_comment(candidate) for candidate in [text, *filter(None, headers)]):
            yield f"{path}: neither it nor its header starts with a comment"


def check_scripts(path, text, is_executable):
    # A file without #! is sourced, and must not change the settings of the shell that sources it.
    if is_shell(path, text) and text.startswith("#!") and not STRICT_SHELL.search(text):
        yield f"{path}: a shell script sets -euo pipefail (bash) or -eu (sh)"
    if is_shell(path, text) and not text.startswith("#!/bin/sh"):  # sh has no pipefail
        for number, line in enumerate(text.split("\n"), 1):
            match = EARLY_END.search(line)
            if match:
                yield f"{path}:{number}: '{match.group(1)}' ends before what it reads, and pipefail takes that for a failure"
    if text.startswith("#!") and not is_executable:
        yield f"{path}: starts with #! and is not executable"
    if re.match(r"#!.*\bpython3?\b", text) and not text.startswith("#!/usr/bin/python3\n"):
        yield f"{path}: Python scripts start with #!/usr/bin/python3"


def check_links(path, text, exists):
    if not path.endswith(".md"):
        return
    for target in MARKDOWN_LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if not exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
            yield f"{path}: links to {target}, which is not there"


def untidy(path, text, is_executable=False, read=lambda path: None, exists=lambda path: True):
    """Returns one sentence for each rule that `text`, the file at `path`, breaks."""
    return [*check_words(path, text), *check_blanks(path, text), *check_code(path, text), *check_mutexes(path, text),
            *check_functions(path, text), *check_header_comment(path, text, read), *check_scripts(path, text, is_executable),
            *check_links(path, text, exists)]


def tree_files(root):
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in SKIPPED_DIRS)
        for name in sorted(names):
            if name not in SKIPPED_FILES and not name.endswith(BINARY_SUFFIXES):
                yield os.path.relpath(os.path.join(folder, name), root)


def read_file(path):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


class PlantedUntidiness(unittest.TestCase):
    WRONG = (
        ("a.md", "later: TO" "DO\n"),
        ("a.cc", "// XX" "X why\n"),
        ("a.cc", "// see /wo" "rk/x\n"),
        ("a.cc", "\tint x;\n"),
        ("a.cc", "int x; \n"),
        ("a.cc", "int x;"),
        ("a.cc", "int x;\n\n"),
        ("a.cc", "using namespace std;\n"),
        ("a.cc", "<<<<<<< ours\n"),
        ("a.py", "x = 1\n" * 1001),
        ("a.py", "def f():\n" + "    x = 1\n" * 70),
        ("a.cc", "void A::f(\n    int x) {\n" + "  ++x;\n" * 68 + "}\n"),
        ("a.h", "#pragma once\n"),
        ("daemon/base/a.cc", "int x;\n"),
        ("agent/a.cc", "std::mutex mutex;\n"),
        ("agent/a.h", "// It has a purpose.\n  std::condition_variable changed_;\n"),
        ("agent/a.cc", "const std::lock_guard lock(mutex_);\n"),
        ("agent/a.cc", "  mutable Mutex mutex_;\n  int guarded_ RUEDA_GUARDED_BY(other_mutex_) = 0;\n"),
        ("agent/a.cc", "  Mutex& mutex() RUEDA_RETURN_CAPABILITY(name) { return mutex_; }\n  Mutex mutex_;\n  int x RUEDA_GUARDED_BY(other);\n"),
        ("a.sh", "#!/bin/sh\nset -eu\n"),
        ("a.sh", "list | grep -xq it\n"),
        ("a.sh", "list | grep -F -m 1 it\n"),
        ("a.sh", "list |  head -n 1\n"),
        ("a.md", "see [there](missing.md)\n"),
    )
    RIGHT = (
        ("a.py", "def f():\n" + "    x = 1\n" * 69),
        ("a.cc", "int f(int x);\nint f(int x) {\n" + "  ++x;\n" * 68 + "}\n"),
        ("a.cc", "int x;\n"),
        ("agent/a.cc", "  Mutex mutex_;  // not std::mutex\n  int guarded_ RUEDA_GUARDED_BY(mutex_) = 0;\n"),
        ("agent/a.cc", "  Mutex& mutex() RUEDA_RETURN_CAPABILITY(name) { return mutex_; }\n  Mutex mutex_;\n  int x RUEDA_GUARDED_BY(name);\n"),
        ("agent/a.cc", "  static Mutex mutex;\n"),
        ("a.h", "// What it is for.\n#pragma once\n"),
        ("a.sh", "# shellcheck shell=bash\n"),
        ("a.sh", "list | grep -x it >/dev/null\ngrep -q it file\nlist | tail -n 1\n"),
        ("a.sh", 'mktemp "${TMPDIR:-/tmp}/rueda.XXXX' 'XX"\nset -euo pipefail\n'),
        ("a.md", "see [there](https://example.org/x)\n"),
    )

    def test_each_untidy_text_is_found(self):
        for path, text in self.WRONG:
            with self.subTest(path=path, text=text[:40]):
                self.assertEqual(len(untidy(path, text, exists=lambda path: False)), 1)

    def test_tidy_text_is_not_found(self):
        for path, text in self.RIGHT:
            with self.subTest(path=path, text=text):
                self.assertEqual(untidy(path, text), [])

    def test_an_executable_shell_script_is_strict(self):
        self.assertEqual(untidy("x", "#!/bin/bash\nset -euo pipefail\n", True), [])
        self.assertEqual(untidy("x", "#!/bin/sh\nset -eu\n", True), [])
        self.assertEqual(len(untidy("x", "#!/bin/bash\nset -e\n", True)), 1)
        self.assertEqual(len(untidy("x", "#!/bin/bash\n", True)), 1)

    def test_a_comment_in_the_header_is_enough(self):
        header = "// What it is for.\n#pragma once\n"
        self.assertEqual(untidy("daemon/base/a.cc", "int x;\n", read=lambda path: header), [])


    def test_a_class_in_two_sources_is_found(self):
        files = [("daemon/a.cc", "void One::f() {}\nint Two::g() {}\n"), ("daemon/b.cc", "int* One::h(\n"),
                 ("tests/c.cc", "int Two::g() {}\n")]
        self.assertEqual(spread_classes(files), {"daemon/One": ["daemon/a.cc", "daemon/b.cc"]})

    def test_a_fragment_is_found(self):
        wrong = ("What a rank has.", "Of a node: its ranks.", "Whether all have submitted.", "Likewise.", "The same, for sums.", "None: empty.",
                 "Told on the loop.", "What is known of a node.\n// It may be little.", "With the lock held.")
        right = ("A node's ranks.", "Returns what a rank has.", "What is sent here is read there.", "Whether it fits is checked by add().",
                 "In a tree, a node has a parent.", "On the loop, waits for\n// the last callback.", "--- Part two")
        for text in wrong:
            with self.subTest(text=text):
                self.assertEqual(fragments([("daemon/a.h", f"int x;\n// {text}\nint y;  // what y is\n")])[1], 1)
                self.assertEqual(len(fragments([("daemon/a.h", f"int x;\n// {text}\nint y;\n")])[0]), 1)
                self.assertEqual(fragments([("tests/a.h", f"// {text}\n")]), ([], 0))
        for text in right:
            with self.subTest(text=text):
                self.assertEqual(fragments([("daemon/a.h", f"// {text}\n")]), ([], 1))

    def test_a_crowded_folder_is_found(self):
        paths = [f"a/{number}.cc" for number in range(31)] + [f"b/{number}.cc" for number in range(30)]
        self.assertEqual(crowded_folders([*paths, *(f"b/{number}.md" for number in range(9))]), {"a": 31})


class Tree(unittest.TestCase):
    def test_the_members_of_a_class_stand_in_one_source(self):
        found = spread_classes((path, read_file(path)) for path in tree_files(ROOT) if path.endswith(".cc"))
        self.assertEqual(set(found), SPREAD_CLASSES, found)

    def test_comments_are_sentences(self):
        found, count = fragments((path, read_file(path)) for path in tree_files(ROOT)
                                 if path.startswith(("agent/", "bench/", "client/", "daemon/")))
        self.assertGreater(count, 1000)
        self.assertLessEqual(len(found) / count, MAX_FRAGMENTS, f"{len(found)} of {count} comments begin as fragments:\n" +
                             "\n".join(found))

    def test_no_folder_is_crowded(self):
        self.assertEqual(list(crowded_folders(tree_files(ROOT))), [])

    def test_every_file_is_tidy(self):
        files = list(tree_files(ROOT))
        self.assertGreater(len(files), 20, f"{ROOT} is not the root of the tree")
        found = []
        for path in files:
            is_executable = os.access(os.path.join(ROOT, path), os.X_OK)
            found += untidy(path, read_file(path), is_executable, read_file,
                            lambda path: os.path.exists(os.path.join(ROOT, path)))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        scripts = [path for path in tree_files(ROOT) if is_shell(path, read_file(path))]
        self.assertTrue(scripts)
        run = subprocess.run(["shellcheck", "-x", "-P", "SCRIPTDIR", *scripts], cwd=ROOT, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(run.returncode, 0, "\n" + run.stdout)


if __name__ == "__main__":
    unittest.main()
