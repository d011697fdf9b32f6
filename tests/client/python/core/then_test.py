"""Tests that Python is told of the ends of librueda's operations, and is left alone when the interpreter ends."""

import os
import subprocess
import sys
import unittest

JOB = {"RUEDA_JOB_ID": "job", "RUEDA_JOB_TOKEN": "00" * 32, "RANK": "0", "LOCAL_RANK": "0"}

# What programs below begin with: they are attached, and submit(name) gives a handle.
PROLOGUE = """
import atexit, ctypes, os, sys, threading, time
import rueda
from rueda._core import _library, _then
rueda.init()
library = _library.load()
def submit(name):
    handle = ctypes.c_uint64()
    _library.check(library.rueda_process_set_barrier_async(0, name.encode(), ctypes.byref(handle)))
    return handle.value
"""


class Daemon:
    """The fake daemon as a process, which completes what is submitted, or does not."""

    def __init__(self, *arguments):
        self._process = subprocess.Popen([os.environ["RUEDA_FAKE_DAEMON"], *arguments], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.socket = self._process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(20)


def run(daemon, program):
    """Runs a program of its own, and returns what it has printed."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", PROLOGUE + program], capture_output=True, text=True,
                          timeout=50, check=False, env={**os.environ, **JOB, "RUEDA_SOCKET": daemon.socket})
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stdout, done.stderr)
    return done.stdout.split()


class ThenTest(unittest.TestCase):
    def test_a_function_is_told_of_the_end(self):
        with Daemon() as daemon:
            said = run(daemon, """
told = threading.Event()
def tell(code, text):
    print(code, repr(text), threading.current_thread() is threading.main_thread())
    told.set()
assert _then.call_when_ended(submit("x"), tell)
told.wait()
rueda.shutdown()
""")
        self.assertEqual(said, ["0", "''", "False"])

    def test_an_error_comes_with_its_text(self):
        with Daemon("hold") as daemon:
            said = run(daemon, """
code_and_text = []
handle = submit("x")
assert _then.call_when_ended(handle, lambda *told: code_and_text.append(told))
print(library.rueda_wait(handle, 0, None))
try:
    rueda.shutdown()
except rueda.RuedaTimeoutError:
    print("timeout")
print(*code_and_text[0][:1], "down" in code_and_text[0][1])
""")
        self.assertEqual(said, ["-1", "timeout", "-8", "True"])

    def test_an_unknown_handle_raises(self):
        with Daemon() as daemon:
            said = run(daemon, """
try:
    _then.call_when_ended(77, print)
except rueda.RuedaError as error:
    print("77" in str(error), len(_then._told))
rueda.shutdown()
""")
        self.assertEqual(said, ["True", "0"])

    def test_each_end_begins_the_next_operation(self):
        with Daemon() as daemon:
            said = run(daemon, """
told, times = threading.Event(), iter(range(2000, -1, -1))
def tell(code, text):
    if next(times) == 0:
        told.set()
    else:
        _then.call_when_ended(submit("x"), tell)
tell(0, "")
told.wait()
print(len(_then._told))
rueda.shutdown()
""")
        self.assertEqual(said, ["0"])

    def test_a_thread_holds_the_interpreter_while_another_shuts_down(self):
        """The callback waits for the interpreter's lock, and rueda.shutdown() for the callback."""
        with Daemon() as daemon:
            self.assertEqual(run(daemon, """
stops = False
def spin():
    while not stops:
        sum(range(1000))
spinner = threading.Thread(target=spin)
spinner.start()
told = []
for i in range(50):
    _then.call_when_ended(submit(f"x{i}"), lambda *one: told.append(one))
rueda.shutdown()
stops = True
print(len(told))
"""), ["50"])

    def test_the_interpreter_ends_while_ends_are_told(self):
        """A thread that came into an interpreter that ends was once ended there, and took the process with it."""
        with Daemon() as daemon:
            for _ in range(10):
                self.assertEqual(run(daemon, """
def again(code, text):
    _then.call_when_ended(submit("x"), again)
for i in range(30):
    _then.call_when_ended(submit(f"x{i}"), again)
print("end")
"""), ["end"])

    def test_at_the_end_of_the_interpreter_handles_are_waited_for(self):
        with Daemon("hold") as daemon:
            said = run(daemon, """
handle = submit("x")
def at_end():
    print(_then.is_over(), library.rueda_wait(handle, 0, None), _then.call_when_ended(handle, print))
atexit._clear()
atexit.register(at_end)
atexit.register(_then._take_back)
_then.call_when_ended(handle, print)
""")
        self.assertEqual(said, ["True", "-4", "False"])

    def test_a_forked_child_ends_as_others_do(self):
        with Daemon() as daemon:
            said = run(daemon, """
told = threading.Event()
_then._registering.acquire()  # as another thread may have at the fork
child = os.fork()
if child == 0:
    sys.exit(7)
_then._registering.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
_then.call_when_ended(submit("x"), lambda *_: told.set())
told.wait()
rueda.shutdown()
""")
        self.assertEqual(said, ["7"])


if __name__ == "__main__":
    unittest.main()
