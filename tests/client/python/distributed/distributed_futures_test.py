"""Tests who is told when an operation has ended, and in which order operations of one name begin."""

import random
import sys
import threading
import time
import unittest
import unittest.mock

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda._core._errors import MISMATCH, TIMEOUT, RuedaError
from rueda.distributed import _operation
from rueda.distributed._futures import Follower, LastOfNames, Turns, Watcher
from rueda.distributed._operation import Operation
from rueda.distributed._transfer import All, Repeated


class End(threading.Event):
    """An event that calls whoever wants to be told of it."""

    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()
        self._tells = []

    def set(self):
        with self._lock:
            super().set()
            tells, self._tells = self._tells, []
        for tell in tells:
            tell()

    def call(self, tell):
        with self._lock:
            if not self.is_set():
                self._tells.append(tell)
                return
        tell()


class Ending:
    """Stands for an operation that another thread ends."""

    what, result, error = "it", [], None

    def __init__(self):
        self.begun = self.polls = 0
        self.end = End()

    @property
    def has_ended(self):
        return self.end.is_set()

    def begin(self):
        self.begun += 1

    def poll(self):
        self.polls += 1
        return self.end.is_set()

    def wait(self, timeout):
        return self.end.wait(timeout)

    def when_ended(self, tell):
        self.end.call(tell)


class EndsAfterALook(Ending):
    """An operation that has told of its end, and ends the moment after it was looked at for the first time, as if another thread
    had just been finishing it."""

    def poll(self):
        had_ended = self.end.is_set()
        self.end.set()
        return had_ended

    def when_ended(self, tell):
        tell()


class Librueda:
    """Stands for librueda, with operations that the test ends. Counts the threads in rueda_wait."""

    def __init__(self):
        self.ended, self.told, self.waiting, self.waits = {}, {}, 0, 0
        self.changed = threading.Condition()

    def rueda_wait(self, handle, timeout_ms, _):
        with self.changed:
            assert handle not in self.told, "a handle with a callback is waited for"
            self.waiting += 1
            self.waits += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: handle in self.ended, timeout_ms / 1e3)
            self.waiting -= 1
            return self.ended.get(handle, TIMEOUT)

    def call_when_ended(self, handle, told):
        with self.changed:
            if handle < 0:
                raise RuedaError(-1, "the handle is unknown")
            assert not self.waiting and handle not in self.told
            self.told[handle] = told
        return True

    def end(self, handle, code=0):
        with self.changed:
            self.ended[handle] = code
            told = self.told.pop(handle, None)
            self.changed.notify_all()
        if told is not None:
            told(code, "they differ" if code else "")


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


class FuturesTest(unittest.TestCase):
    def test_what_ends_between_two_looks_is_not_forgotten(self):
        told = []
        follower = Follower("test")
        operations = [EndsAfterALook() for _ in range(50)]
        for operation in operations:
            follower.follow(operation, told.append)
        self.assertTrue(wait_until(lambda: len(told) == 50), len(told))
        self.assertEqual(set(map(id, told)), set(map(id, operations)))

    def test_everyone_is_told_once_whoever_ends_them(self):
        chosen = random.Random(1)
        follower, told = Follower("test"), []
        operations = [Ending() for _ in range(300)]
        ends = operations[:]
        chosen.shuffle(ends)
        ender = threading.Thread(target=lambda: [(operation.end.set(), time.sleep(0.0002)) for operation in ends])
        ender.start()
        for operation in operations:
            follower.follow(operation, told.append)
        ender.join()
        self.assertTrue(wait_until(lambda: len(told) == 300), len(told))
        self.assertEqual(len(set(map(id, told))), 300)

    def test_operations_of_one_name_begin_one_after_the_other(self):
        turns = Turns(Follower("test"), Watcher("test"), LastOfNames())
        first, second, third, other = Ending(), Ending(), Ending(), Ending()
        for name, operation in (("a", first), ("a", second), ("a", third), ("b", other)):
            turns.begin(name, operation)
        self.assertEqual([first.begun, second.begun, third.begun, other.begun], [1, 0, 0, 1])
        first.end.set()
        self.assertTrue(wait_until(lambda: second.begun == 1))
        self.assertEqual(third.begun, 0)
        second.end.set()
        self.assertTrue(wait_until(lambda: third.begun == 1))

    def test_a_follower_does_not_look_before_it_is_told(self):
        """It once looked at all that it followed every 10 ms."""
        follower, told = Follower("test"), []
        first, second = Ending(), Ending()
        follower.follow(first, told.append)
        for _ in range(20):
            second = Ending()
            follower.follow(second, told.append)
            second.end.set()
            self.assertTrue(wait_until(lambda end=second: told and told[-1] is end))
            self.assertEqual(second.polls, 1)
        self.assertEqual(first.polls, 0)
        first.end.set()
        self.assertTrue(wait_until(lambda: told[-1] is first))

    def test_a_follower_that_is_closed_ends_with_the_last_operation(self):
        follower, told = Follower("test-closed"), []
        operation = Ending()
        follower.follow(operation, told.append)
        follower.close()
        operation.end.set()
        self.assertTrue(wait_until(lambda: not any(one.name == "test-closed" for one in threading.enumerate())))
        self.assertEqual(told, [operation])
        later = Ending()
        follower.follow(later, told.append)
        later.end.set()
        self.assertTrue(wait_until(lambda: told == [operation, later]))

    def test_what_goes_on_only_if_it_is_polled_goes_on(self):
        first, second, begun = Ending(), Ending(), []
        first.error = ValueError("again")

        def again():
            begun.append(True)
            return second

        repeated = Repeated(first, lambda error: True, again)
        both = All("both", [unittest.mock.Mock(operation=repeated), unittest.mock.Mock(operation=Ending())])
        watcher = Watcher("test")
        watcher.watch(both)
        first.end.set()
        both._parts[1].end.set()
        self.assertTrue(wait_until(lambda: begun == [True]))
        self.assertFalse(both.has_ended)
        second.end.set()
        self.assertTrue(wait_until(lambda: both.has_ended))


class OperationTest(unittest.TestCase):
    def setUp(self):
        self.librueda = Librueda()
        for target, name, stub in ((_operation._library, "load", lambda: self.librueda),
                                   (_operation._library, "last_error", lambda: "they differ"),
                                   (_operation._then, "call_when_ended", self.librueda.call_when_ended)):
            patch = unittest.mock.patch.object(target, name, stub)
            patch.start()
            self.addCleanup(patch.stop)

    def operation(self, handle=1):
        return Operation("it", lambda: handle, lambda: ["result"], None)

    def test_who_waits_and_who_is_told_see_one_end(self):
        operation, told = self.operation(), End()
        operation.begin()
        operation.when_ended(told.set)
        self.assertEqual(list(self.librueda.told), [1])
        self.assertFalse(operation.wait(0.001))
        waiter = threading.Thread(target=operation.wait, args=(20,))
        waiter.start()
        self.assertFalse(told.is_set())
        self.librueda.end(1)
        self.assertTrue(told.is_set())
        waiter.join()
        self.assertTrue(operation.poll())
        self.assertEqual((operation.result, operation.error, self.librueda.waits), (["result"], None, 0))
        again = End()
        operation.when_ended(again.set)
        self.assertTrue(again.is_set())

    def test_who_is_told_polls_and_has_the_end(self):
        operation, told = self.operation(), []
        operation.begin()
        operation.when_ended(lambda: told.append(operation.poll()))
        self.librueda.end(1, MISMATCH)
        self.assertEqual(told, [True])
        self.assertEqual(str(operation.error), "it: they differ")

    def test_a_thread_that_waits_already_tells_of_the_end(self):
        operation, told = self.operation(), End()
        operation.begin()
        waiter = threading.Thread(target=operation.wait, args=(None,))
        waiter.start()
        with self.librueda.changed:
            self.librueda.changed.wait_for(lambda: self.librueda.waiting)
        operation.when_ended(told.set)
        self.librueda.end(1)
        self.assertTrue(told.wait(20))
        waiter.join()
        self.assertTrue(operation.has_ended)

    def test_a_thread_that_has_waited_in_vain_leaves_the_end_to_librueda(self):
        operation, told = self.operation(), End()
        operation.begin()
        waiter = threading.Thread(target=operation.wait, args=(0.2,))
        waiter.start()
        with self.librueda.changed:
            self.librueda.changed.wait_for(lambda: self.librueda.waiting)
        operation.when_ended(told.set)
        waiter.join()
        self.assertEqual(list(self.librueda.told), [1])
        self.librueda.end(1)
        self.assertTrue(told.is_set())

    def test_an_end_that_comes_while_librueda_is_asked_to_tell_of_it(self):
        """Who was told looked while the thread that had asked still held the operation, and was never told again."""
        def tell_at_once(_, told):
            teller = threading.Thread(target=told, args=(0, ""))
            teller.start()
            teller.join()
            return True

        def look():
            looks.append(operation.poll())
            if not looks[-1]:
                operation.when_ended(look)

        operation, looks = self.operation(), []
        operation.begin()
        with unittest.mock.patch.object(_operation._then, "call_when_ended", tell_at_once):
            operation.when_ended(look)
        self.assertEqual(looks, [False, True])

    def test_an_operation_that_has_not_begun_tells_of_its_end(self):
        operation, told = self.operation(), End()
        operation.when_ended(told.set)
        waiter = threading.Thread(target=operation.wait, args=(20,))
        waiter.start()
        self.assertEqual(self.librueda.told, {})
        operation.begin()
        self.assertEqual(list(self.librueda.told), [1])
        self.librueda.end(1)
        self.assertTrue(told.is_set())
        waiter.join()
        self.assertTrue(operation.has_ended)

    def test_an_operation_that_cannot_begin_tells_of_its_end(self):
        def fail():
            raise ValueError("no")

        operation, told = Operation("it", fail, list, None), End()
        operation.when_ended(told.set)
        operation.begin()
        self.assertTrue(told.is_set())
        self.assertEqual(str(operation.error), "no")

    def test_a_handle_that_librueda_does_not_know_is_an_end(self):
        operation, told = self.operation(-5), End()
        operation.begin()
        operation.when_ended(told.set)
        self.assertTrue(told.is_set())
        self.assertEqual(str(operation.error), "it: the handle is unknown")

    def test_many_threads_wait_poll_and_are_told(self):
        for _ in range(100):
            operation, told = self.operation(), []
            operation.begin()
            ends = [End() for _ in range(4)]
            threads = [threading.Thread(target=operation.wait, args=(20,)),
                       threading.Thread(target=lambda: [operation.poll() for _ in range(20)]),
                       threading.Thread(target=self.librueda.end, args=(1,)),
                       *(threading.Thread(target=operation.when_ended, args=(end.set,)) for end in ends)]
            for thread in threads:
                thread.start()
            follower = Follower("test")
            follower.follow(operation, told.append)
            for thread in threads:
                thread.join()
            self.assertTrue(wait_until(lambda: told == [operation]))
            self.assertTrue(all(end.wait(20) for end in ends))
            self.librueda.__init__()


if __name__ == "__main__":
    unittest.main()
