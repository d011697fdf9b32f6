#!/usr/bin/python3
"""Fails when a field is touched without its mutex, as daemon/base/mutex.h lets clang see.

Run as: thread_safety_test.py ROOT BUILD; the compile commands of BUILD say which sources there are. The first half of the tests
plants mistakes in strings and expects each to be found, the second half looks at every source that has a mutex, or that includes
a header that has one.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else ""
ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()

CLANG = shutil.which("clang++-14")
CCACHE = shutil.which("ccache")
LINTER = shutil.which("clang-tidy-14")
ROOMS = ("daemon/", "agent/", "client/")
MUTEX = "daemon/base/mutex.h"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
KEPT_WITH_NEXT = ("-I", "-isystem", "-include", "-D")

CLASS = """#include "daemon/base/mutex.h"

class Counter {
 public:
  void add() RUEDA_EXCLUDES(mutex_) {
    const rueda::MutexLock lock(mutex_);
    add_one();
  }
  void wait() RUEDA_EXCLUDES(mutex_) {
    rueda::MutexLock lock(mutex_);
    while (count_ == 0) changed_.wait(lock);
    lock.unlock();
    lock.lock();
    --count_;
  }
  void add_if_free() RUEDA_EXCLUDES(mutex_) {
    if (!mutex().try_lock()) return;
    const rueda::MutexLock lock(mutex(), rueda::kAdopt);
    add_one();
  }
%s
 private:
  void add_one() RUEDA_REQUIRES(mutex_) { ++count_; }
  void add_two() RUEDA_REQUIRES(mutex_) {
    {
      const rueda::MutexUnlock unlock(mutex());
      add();
    }
    add_one();
  }
  rueda::Mutex& mutex() RUEDA_RETURN_CAPABILITY(mutex_) { return mutex_; }

  rueda::Mutex mutex_;
  rueda::Condition changed_;
  int count_ RUEDA_GUARDED_BY(mutex_) = 0;
};
"""


def look_at(arguments, text=None):
    """What clang says against the source that the arguments name, or that `text` is; empty: nothing."""
    run = subprocess.run([CLANG, "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", *arguments],
                         input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return "" if run.returncode == 0 else run.stdout


def look_at_source(path, arguments):
    """As look_at(), but what ccache has seen without a word against it is not looked at again. ccache knows nothing of -fsyntax-only:
    an object is made."""
    if not CCACHE:
        return look_at([*arguments, path])
    with tempfile.TemporaryDirectory(prefix="rueda-test-") as folder:
        run = subprocess.run([CCACHE, CLANG, "-O0", "-Wthread-safety", "-Werror=thread-safety", *arguments, "-c", path,
                              "-o", os.path.join(folder, "looked_at.o")],
                             env={**os.environ, "CCACHE_BASEDIR": ROOT, "CCACHE_NOHASHDIR": "1"}, cwd=BUILD, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return "" if run.returncode == 0 else run.stdout


def look_at_text(text):
    return look_at(["-std=c++20", "-I", ROOT, "-x", "c++", "-"], text)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def sources_of(path):
    """The tree's sources that are compiled as this one: itself, or what a unity batch includes."""
    included = [source for source in INCLUDE.findall(read(path)) if source.endswith(".cc")]
    return [os.path.relpath(os.path.join(ROOT, source), ROOT) for source in included or [path]]


def has_mutex(source):
    """Whether the source includes mutex.h, or a header that does."""
    included = INCLUDE.findall(read(os.path.join(ROOT, source)))
    return MUTEX in included or any(MUTEX in INCLUDE.findall(read(os.path.join(ROOT, header))) for header in included)


def arguments_for_clang(command):
    """Of a compile command, what decides what the source means."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in KEPT_WITH_NEXT:
            kept += [word, next(words)]
        elif word.startswith((*KEPT_WITH_NEXT, "-std=")):
            kept.append(word)
    return kept


@unittest.skipUnless(CLANG, "clang++-14 is not installed")
class PlantedMistakes(unittest.TestCase):
    WRONG = (
        ("a field is read without its mutex",
         "int count() const { return count_; }",
         "reading variable 'count_' requires holding mutex 'mutex_'"),
        ("a field is written without its mutex",
         "void reset() { count_ = 0; }",
         "writing variable 'count_' requires holding mutex 'mutex_'"),
        ("a method that needs the mutex is called without it",
         "void twice() { add_one(); }",
         "calling function 'add_one' requires holding mutex"),
        ("a method that takes the mutex is called with it",
         "void twice() { const rueda::MutexLock lock(mutex_); add(); }",
         "cannot call function 'add' while mutex 'mutex_' is held"),
        ("the mutex is taken twice",
         "void twice() { const rueda::MutexLock one(mutex_); const rueda::MutexLock two(mutex_); }",
         "acquiring mutex 'mutex_' that is already held"),
        ("a field is touched after unlock()",
         "void late() { rueda::MutexLock lock(mutex_); lock.unlock(); ++count_; }",
         "writing variable 'count_' requires holding mutex 'mutex_'"),
        ("a field is touched while the mutex is given up",
         "void late() RUEDA_REQUIRES(mutex_) { const rueda::MutexUnlock unlock(mutex_); ++count_; }",
         "writing variable 'count_' requires holding mutex 'mutex_'"),
        ("a mutex is given up that is not held",
         "void early() { const rueda::MutexUnlock unlock(mutex()); }",
         "releasing mutex 'mutex_' that was not held"),
        ("a field is touched though the mutex was not free",
         "void late() { if (mutex_.try_lock()) { const rueda::MutexLock lock(mutex_, rueda::kAdopt); } else { ++count_; } }",
         "writing variable 'count_' requires holding mutex 'mutex_'"),
        ("a mutex is adopted that was not taken",
         "void early() { const rueda::MutexLock lock(mutex(), rueda::kAdopt); }",
         "calling function 'MutexLock' requires holding mutex 'mutex_'"),
        ("the other object's mutex is not held",
         "void swap(Counter& other) { const rueda::MutexLock lock(mutex_); other.count_ = count_; }",
         "requires holding mutex 'other.mutex_'"),
        ("a lambda does not say what it needs",
         "int later() { const rueda::MutexLock lock(mutex_); return [this] { return count_; }(); }",
         "reading variable 'count_' requires"),
    )

    def test_the_class_without_a_mistake_is_not_found(self):
        self.assertEqual(look_at_text(CLASS % ""), "")

    def test_each_mistake_is_found(self):
        for name, method, expected in self.WRONG:
            with self.subTest(name):
                self.assertIn(expected, look_at_text(CLASS % f"  {method}\n"))

    @unittest.skipUnless(LINTER, "clang-tidy-14 is not installed")
    def test_lint_finds_a_mistake_too(self):
        # lint.sh runs clang-tidy with this configuration on what has changed.
        path = os.path.join(BUILD or ROOT, "planted_mistake.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CLASS % "  void reset() { count_ = 0; }\n")
        self.addCleanup(os.remove, path)
        run = subprocess.run([LINTER, f"--config-file={ROOT}/.clang-tidy", "--quiet", "--warnings-as-errors=*", path, "--",
                              "-std=c++20", "-I", ROOT],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        self.assertIn("writing variable 'count_' requires holding mutex 'mutex_'", run.stdout)
        self.assertNotEqual(run.returncode, 0)


@unittest.skipUnless(CLANG, "clang++-14 is not installed")
class Tree(unittest.TestCase):
    def test_every_field_is_touched_with_its_mutex(self):
        looked_at, jobs = set(), []
        for entry in json.loads(read(os.path.join(BUILD, "compile_commands.json"))):
            path = os.path.join(entry["directory"], entry["file"])
            sources = {source for source in sources_of(path) if source.startswith(ROOMS) and has_mutex(source)}
            if sources - looked_at:
                looked_at |= sources
                jobs.append((path, arguments_for_clang(entry["command"])))
        self.assertGreater(len(looked_at), 20, f"{BUILD} has few sources with mutexes")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [said for said in pool.map(lambda job: look_at_source(*job), jobs) if said]
        self.assertEqual(found, [], "\n" + "\n".join(found))


if __name__ == "__main__":
    unittest.main()
