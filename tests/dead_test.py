#!/usr/bin/python3
"""Fails when the product has a function that nothing in it calls, or a file that nothing in it includes, builds or imports.

Run as: dead_test.py ROOT. What only tests use belongs to the tests. C++ is read by names: a function is alive when its name
stands in code that is alive itself, so one of two functions with the same name may be dead and not found. Alive from the start
are main(), constructors, destructors, operators, macros, whatever stands outside functions, the public headers, and functions
that override a library's, or that it looks up by name. The first half of the tests plants dead code in strings and expects it to be found.
"""

import ast
import collections
import os
import re
import sys
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()

SOURCE_DIRS = ("daemon", "agent", "client", "bench")
HEADER_SUFFIXES = (".h", ".hpp", ".cuh")
SOURCE_SUFFIXES = (".cc", ".c", ".cu")
PUBLIC = "client/include/"  # other people's programs call and include what is there
PACKAGES = ("client/python/rueda/", "client/python/rueda_autoload/")
LOOKED_UP = re.compile(r"(MPIABI|MPIXABI|mpiwrapper)_")  # jaxlib looks these functions up by name; tests/jax/mpi_names_test.py has the list

# These functions are called by nothing in the product, and each says why it is there all the same. An entry that is not needed
# fails.
SURVIVAL = "what jobs that survive a death will do; the simulator and the data plane's tests prove it, no daemon does it yet (README.md)"
EXCEPTIONS = dict.fromkeys(("complete_seq", "final_chunk", "is_completing", "on_stable", "take_final", "unstable_bytes"),
                           SURVIVAL)
EXCEPTIONS |= dict.fromkeys(("rueda_jax_leave_job", "leave_job", "await_leave"), "rueda.jax calls it, in Python")
EXCEPTIONS |= dict.fromkeys(("rueda_tensorflow_problem", "rueda_tensorflow_take_back", "take_back_callbacks"), "Python calls it by ctypes")
# These are the exceptions of the Python package.
BACKEND = "torch.distributed calls it of a backend"
WORK = "torch.distributed calls it of the work that a backend returns"
HOROVOD = "a method of Horovod's API, which scripts call"
PYTHON_EXCEPTIONS = {
    **dict.fromkeys(("getBackendName", "_get_backend_name", "_get_backend", "_device_types", "get_group_store",
                     "allreduce_coalesced", "allgather_coalesced", "recv_anysource", "eager_connect_single_device",
                     "split_group", "_start_coalescing", "_end_coalescing"), BACKEND),
    **dict.fromkeys(("is_completed", "is_success"), WORK),
    **dict.fromkeys(("set_backward_passes_per_step", "skip_synchronize", "set_epoch", "record_batch", "register_reset_callbacks",
                     "on_hosts_updated"), HOROVOD),
    **dict.fromkeys(("is_env_present", "get_coordinator_address", "get_process_count", "get_process_id", "get_local_process_id"),
                    "jax.distributed calls it of a cluster"),
    **dict.fromkeys(("on_train_batch_begin", "on_train_batch_end", "on_epoch_begin"), "Keras calls it of a callback"),
    "register_local_var": HOROVOD,
    **dict.fromkeys(("_allreduce_gradient", "_broadcast_gradient", "_allgather_gradient", "_reducescatter_gradient", "_alltoall_gradient"),
                    "TensorFlow calls it for the gradient of an op"),
    "_programs": "pyproject.toml names it",
}

# Matches a word, a string, a directive of the preprocessor, or a sign.
TOKEN = re.compile(r'''(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
    |R"\((?P<raw>.*?)\)"|"(?P<string>(?:[^"\\\n]|\\.)*)"|'(?:[^'\\\n]|\\.)+'
    |(?P<word>[A-Za-z_]\w*)|(?P<number>\d(?:'?[\w.])*)|(?P<sign>::|->|&&|\S)''', re.VERBOSE | re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[>"]', re.MULTILINE)
NO_TYPES = {"return", "operator", "new", "delete", "explicit", "else", "throw", "case", "co_return", "not", "and", "or", "requires",
            "goto", "using", "typedef", "do", "co_await", "co_yield"}
NO_NAMES = {"void", "noexcept", "alignas", "decltype", "requires", "static_assert", "operator", "if", "while", "for", "switch",
            "sizeof", "__attribute__", "__launch_bounds__"}
TYPE_ENDS = {">", "*", "&", "&&"}


def tokens_of(text):
    """Yields (kind, token, line) of C++ source, without its comments."""
    line, last = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        if match.lastgroup != "comment":
            kind = match.lastgroup or "sign"
            yield kind, match.group(match.lastgroup or 0), line


def without_template(statement):
    """Returns `statement`, (kind, token, line) of each token, without the `template <...>` that it begins with."""
    while statement and statement[0][1] == "template":
        depth = 0
        for index, (_, token, _) in enumerate(statement[1:], 1):
            depth += (token == "<") - (token == ">")
            if depth == 0:
                statement = statement[index + 1:]
                break
        else:
            return []
    return statement


def opened_by(statement):
    """Returns what a brace after `statement` opens: a "namespace", a "class", or the "body" of a function, which may be a value.
    """
    words = [token for _, token, _ in without_template(statement) if token != "inline"]
    if words[:1] == ["namespace"] or words[:1] == ["extern"] and len(words) == 2:
        return "namespace"
    return "class" if words[:1] in (["class"], ["struct"], ["union"]) and ("(" not in words or "alignas" in words) else "body"


def declared_in(statement):
    """Returns the index of the name of the function that `statement` declares or defines, or None if there is none."""
    for index in range(1, len(statement) - 1):
        kind, token, _ = statement[index]
        if token == "=":
            return None
        if kind != "word" or token in NO_NAMES or statement[index + 1][1] != "(":
            continue
        before = index - 1
        while before >= 2 and statement[before][1] == "::" and statement[before - 1][0] == "word":
            before -= 2  # goes over Class::
        kind, token, _ = statement[before]
        if before >= 0 and (kind == "word" and token not in NO_TYPES or token in TYPE_ENDS):
            return index
    return None


class Function:
    def __init__(self, path, line, name, statement, is_in_class):
        self.path, self.line, self.name = path, line, name
        self.overrides = "override" in statement or "final" in statement
        self.is_qualified = f"::{name}(" in "".join(statement)  # true for the definition of what a class declares
        self.is_method = is_in_class and "friend" not in statement or self.is_qualified
        self.uses = set()  # the names in its bodies: each word, and possible calls of methods with `()` behind them


def uses_in(tokens):
    """Returns the words among `tokens`, (kind, token, line) of each; words that may be calls of methods are there with `()`
    behind them, too."""
    found = set()
    for index, (kind, token, _) in enumerate(tokens):
        if kind == "directive":
            if not INCLUDE.match(token):
                found.update(WORD.findall(token), (word + "()" for word in WORD.findall(token)))
        elif kind in ("string", "raw"):
            if WORD.fullmatch(token):  # dlsym() takes names
                found.update((token, token + "()"))
        elif kind == "word":
            found.add(token)
            before = tokens[index - 1] if index > 0 else ("sign", ";", 0)
            behind = tokens[index + 1][1] if index + 1 < len(tokens) else ";"
            is_variable = before[0] == "word" and before[1] not in NO_TYPES
            if before[1] == "::" or behind in ("(", "<") and not is_variable:
                found.add(token + "()")
    return found


def read_source(path, text):
    """Returns (functions, uses outside functions) of one file: each declaration and each definition is a Function."""
    functions, outside = [], set()
    scopes, statement, body, parens = [], [], [], 0  # scopes has what each brace opened
    owner = None  # the function whose body this is
    classes = set(CLASS.findall(text))

    def end_statement(has_body):
        nonlocal statement
        index = declared_in(statement)
        found = None
        if index is not None and statement[index][1] not in classes:  # otherwise it is a constructor
            words = [token for _, token, _ in statement]
            found = Function(path, statement[index][2], words[index], words, scopes[-1:] == ["class"])
            functions.append(found)
        outside.update(uses_in([("sign", ";", 0) if at == index else token for at, token in enumerate(statement)]))
        statement = []
        return found if has_body else None

    for kind, token, line in tokens_of(text):
        is_inside = "body" in scopes
        if kind == "directive":
            outside.update(uses_in([(kind, token, line)]))
        elif is_inside:
            scopes += ["body"] if token == "{" else []
            if token == "}":
                scopes.pop()
            body.append((kind, token, line))
            if "body" not in scopes:
                (owner.uses if owner else outside).update(uses_in(body))
                body = []
        elif token == "{":
            opens = opened_by(statement) if parens == 0 else "body"
            owner = end_statement(opens == "body")
            scopes.append(opens)
        elif token == "}":
            if scopes:
                scopes.pop()
            statement, parens = [], 0
        elif token == ";" or token == ":" and statement and statement[-1][1] in ("public", "private", "protected"):
            end_statement(False)
            parens = 0
        else:
            parens += (token == "(") - (token == ")")
            statement.append((kind, token, line))
    return functions, outside


def dead_functions(files):
    """Returns those functions of `files`, {path: text}, that nothing alive names: (path, line, name)."""
    functions, alive = [], {"main", "main()"}
    for path, text in files.items():
        found, outside = read_source(path, text)
        functions += found
        alive |= outside
        if path.startswith(PUBLIC):
            alive.update(function.name for function in found)
            alive.update(function.name + "()" for function in found)
        alive.update(function.name for function in found if LOOKED_UP.match(function.name))
    ours = {function.name for function in functions if not function.overrides and not function.is_qualified}
    alive.update(function.name + "()" for function in functions if function.overrides and function.name not in ours)
    by_use = collections.defaultdict(list)
    for function in functions:
        by_use[function.name + "()" if function.is_method else function.name].append(function)
    new = [use for use in by_use if use in alive]
    while new:
        uses = set().union(*(function.uses for function in by_use[new.pop()])) - alive
        alive |= uses
        new += [use for use in uses if use in by_use]
    lives = {function for use in by_use if use in alive for function in by_use[use]}
    return [(function.path, function.line, function.name) for function in functions if function not in lives]


def dead_files(files, build_texts):
    """Returns headers of `files` that only their own source includes, if any, and sources that no CMakeLists.txt names."""
    included = collections.defaultdict(set)
    for path, text in files.items():
        for include in INCLUDE.findall(text):
            included[include].add(os.path.splitext(path)[0])
    found = []
    for path in files:
        if path.endswith(HEADER_SUFFIXES) and not path.startswith(PUBLIC):
            if not included[path] - {os.path.splitext(path)[0]}:
                found.append(path)
        elif path.endswith(SOURCE_SUFFIXES):
            if not any(re.search(rf"(?<![\w-]){re.escape(os.path.basename(path))}\b", text) for text in build_texts):
                found.append(path)
    return found


def python_uses(node):
    """Yields the names that the code at `node` reads, its own definitions left out; a string that is a name counts."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            yield from (alias.name.split(".")[-1] for alias in part.names)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield part.value


def dead_python(files):
    """Returns what nothing in `files`, {path: text}, names or imports: (path, line, name) of functions, and (path, 1, name) of
    modules."""
    functions, uses, imports = [], set(), set()
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions.append((path, node.lineno, node.name))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.update(part for alias in node.names for part in alias.name.split("."))
                imports.update((getattr(node, "module", None) or "").split("."))
        uses.update(python_uses(ast.parse(text)))
    modules = [(path, 1, os.path.basename(path)[:-3]) for path in files]
    return [*(found for found in functions if found[2] not in uses and not re.fullmatch("__.*__", found[2])),
            *(found for found in modules if re.match("_[^_]", found[2]) and found[2] not in imports)]


def read_tree(folders, suffixes):
    files = {}
    for top in folders:
        for folder, dirs, names in os.walk(os.path.join(ROOT, top)):
            dirs[:] = [name for name in dirs if not name.startswith(".") and name not in ("build", "__pycache__")]
            for name in sorted(names):
                if name.endswith(suffixes):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        files[os.path.relpath(os.path.join(folder, name), ROOT)] = file.read()
    return files


class PlantedDeath(unittest.TestCase):
    ALIVE = {
        "daemon/a.h": "namespace n {\nclass A : public Base {\n public:\n  A(int x);\n  int size() const { return inner(); }\n"
                      "  void on_done() override;\n\n private:\n  int inner() const;\n};\nint free_one(int);\n}\n",
        "daemon/a.cc": '#include "daemon/a.h"\nnamespace n {\nA::A(int x) : Base(free_one(x)) {}\nint A::inner() const { return 1; }\n'
                       "void A::on_done() {}\nint free_one(int x) { return x; }\n}\n",
        "daemon/main.cc": '#include "daemon/a.h"\nint main() {\n  n::A a(1);\n  return a.size();\n}\n',
    }
    # Each row has what is added to main.cc, and the functions that are dead then.
    DEAD = (
        ("void lonely() {}\n", ["lonely"]),
        ("static int lonely(const std::vector<int>& x) {\n  return x[0];\n}\n", ["lonely"]),
        ("std::function<int(int)> lonely(int a, int b) { return {}; }\n", ["lonely"]),
        ("template <class T>\nT lonely(T x) {\n  return x;\n}\n", ["lonely"]),
        ("int lonely(int n) { return n < 1 ? 0 : lonely(n - 1); }\n", ["lonely"]),
        ("void one();\nvoid other() { one(); }\nvoid one() { other(); }\n", ["one", "other", "one"]),
        ("struct S {\n  int lonely() const { return lonely_; }\n  int lonely_ = 0;\n};\n", ["lonely"]),
        ("struct S {\n  int count() const { return 1; }\n};\nint f() {\n  int count = 0;\n  return count;\n}\nint g = f();\n", ["count"]),
        ("struct S {\n  virtual void tell() = 0;\n};\nstruct T : S {\n  void tell() override {}\n};\n", ["tell", "tell"]),
        ("// lonely() is only talked of\nvoid lonely() {}\nconst char* text = \"lonely()\";\n", ["lonely"]),
    )
    NOT_DEAD = (
        "int used() { return 1; }\nint x = used();\n",
        "void used() {}\nvoid (*pointer)() = used;\n",
        "#define CALL used()\nvoid used() {}\n",
        'void used() {}\nvoid* found = dlsym(nullptr, "used");\n',
        "struct S {\n  bool operator==(const S& other) const { return used(other); }\n  bool used(const S&) const;\n};\n",
        "struct S {\n  template <class T>\n  T used() const;\n};\nint x = S().used<int>();\n",
    )

    def test_what_is_alive_is_not_found(self):
        self.assertEqual(dead_functions(self.ALIVE), [])
        for text in self.NOT_DEAD:
            with self.subTest(text=text):
                self.assertEqual(dead_functions({**self.ALIVE, "daemon/b.cc": text}), [])

    def test_each_dead_function_is_found(self):
        for text, names in self.DEAD:
            with self.subTest(text=text):
                self.assertEqual([name for _, _, name in dead_functions({**self.ALIVE, "daemon/b.cc": text})], names)

    def test_what_only_a_public_header_declares_is_alive(self):
        self.assertEqual(dead_functions({PUBLIC + "rueda/x.h": "RUEDA_API int rueda_x(void);\n"}), [])

    def test_a_dead_file_is_found(self):
        built = ["add_executable(x a.cc main.cc)"]
        self.assertEqual(dead_files(self.ALIVE, built), [])
        self.assertEqual(dead_files({**self.ALIVE, "daemon/c.h": "", "daemon/c.cc": '#include "daemon/c.h"\n'}, built),
                         ["daemon/c.h", "daemon/c.cc"])

    def test_dead_python_is_found(self):
        files = {"a/__init__.py": "from ._b import used\n", "a/_b.py": "def used():\n    return 1\n"}
        self.assertEqual(dead_python(files), [])
        files["a/_c.py"] = "class C:\n    def __len__(self):\n        return 0\n\n    def lonely(self):\n        return 'lonely one'\n"
        self.assertEqual(dead_python(files), [("a/_c.py", 5, "lonely"), ("a/_c.py", 1, "_c")])


class Tree(unittest.TestCase):
    def check(self, found, exceptions):
        """Checks that `found` are the exceptions, all of them and nothing else."""
        lines = [f"{path}:{line}: {name}" for path, line, name in found if name not in exceptions]
        self.assertEqual(lines, [], "nothing uses these; delete them, or move them to what uses them:\n" + "\n".join(lines))
        self.assertEqual(set(exceptions) - {name for _, _, name in found}, set(), "exceptions that are not needed any more")

    def test_no_function_is_dead(self):
        files = read_tree(SOURCE_DIRS, HEADER_SUFFIXES + SOURCE_SUFFIXES)
        self.assertGreater(len(files), 100, f"{ROOT} is not the root of the tree")
        self.check(dead_functions(files), EXCEPTIONS)

    def test_no_file_is_dead(self):
        builds = read_tree((*SOURCE_DIRS, "deploy", "tests"), ("CMakeLists.txt", ".cmake"))
        found = dead_files(read_tree(SOURCE_DIRS, HEADER_SUFFIXES + SOURCE_SUFFIXES), builds.values())
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_no_python_is_dead(self):
        self.check(dead_python(read_tree(PACKAGES, (".py",))), PYTHON_EXCEPTIONS)


if __name__ == "__main__":
    unittest.main()
