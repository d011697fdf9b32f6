"""Tests arrays of every kind through the package and the library, against a stand-in daemon for one rank."""

import gc
import os
import signal
import subprocess
import threading
import time
import unittest

import numpy as np

import rueda

JOB = {"RUEDA_JOB_ID": "job", "RUEDA_JOB_TOKEN": "00" * 32, "RANK": "0", "LOCAL_RANK": "0"}


class Daemon:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([os.environ["RUEDA_FAKE_DAEMON"], *arguments], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.socket = self.process.stdout.readline().strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


class DaemonTest(unittest.TestCase):
    arguments = ()

    def setUp(self):
        os.environ.update(JOB)
        self.daemon = Daemon(*self.arguments)
        self.addCleanup(self.daemon.stop)
        rueda.init(socket=self.daemon.socket)
        self.addCleanup(rueda.shutdown)


class ArrayTest(DaemonTest):
    def test_shapes_and_dtypes_come_back(self):
        for kind in (np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
                     np.uint64, np.complex64, np.complex128):
            for shape in ((), (0,), (3, 0, 2), (5,), (2, 3, 4), (1 << 17,)):
                tensor = np.full(shape, 3, kind)
                result = rueda.allreduce(tensor, timeout=20)
                self.assertEqual((result.shape, result.dtype), (shape, np.dtype(kind)))
                np.testing.assert_array_equal(result, tensor)
                self.assertIsNot(result, tensor)
        bits = np.array([0x3f80, 0x4000], np.uint16)
        np.testing.assert_array_equal(rueda.allreduce(bits, dtype="bfloat16", timeout=20), bits)
        self.assertEqual(rueda.allreduce(np.float32(2), timeout=20), 2)

    def test_complex_numbers_have_no_order(self):
        tensor = np.array([1 + 2j, -3j], np.complex64)
        for op in (rueda.Sum, rueda.Average, rueda.Product):
            np.testing.assert_array_equal(rueda.allreduce(tensor, op=op, timeout=20), tensor)
        for op, name in ((rueda.Min, "min"), (rueda.Max, "max")):
            with self.assertRaisesRegex(rueda.RuedaError, f"tensor \"waves\" is complex64, .* no {name}.* the product"):
                rueda.allreduce(tensor, name="waves", op=op, timeout=20)
        with self.assertRaisesRegex(rueda.RuedaError, "complex64.*Adasum"):
            rueda.allreduce(tensor, op=rueda.Adasum, timeout=20)
        with self.assertRaisesRegex(rueda.RuedaError, "complex64.*only float32 can be"):
            rueda.allreduce(tensor, wire_dtype="float16", timeout=20)

    def test_bools_are_logical(self):
        flags = np.array([True, False, True])
        for op in (rueda.Sum, rueda.Max, rueda.Min, rueda.Product):
            result = rueda.allreduce(flags, op=op, timeout=20)
            self.assertEqual(result.dtype, np.dtype(bool))
            np.testing.assert_array_equal(result, flags)
        for arguments in ({}, {"op": rueda.Sum, "postscale_factor": 0.5}):
            with self.assertRaisesRegex(rueda.RuedaError, "tensor \"flags\" is bool.*sum or the maximum"):
                rueda.allreduce(flags, name="flags", timeout=20, **arguments)

    def test_scales_and_operator_arrive(self):
        result = rueda.allreduce(np.ones(4, np.float32), op=rueda.Sum, prescale_factor=2.0,
                                 postscale_factor=3.0, timeout=20)
        np.testing.assert_array_equal(result, np.full(4, 6, np.float32))

    def test_only_float32_has_a_wire_dtype(self):
        result = rueda.allreduce(np.ones(4, np.float32), op=rueda.Sum, prescale_factor=2.0, wire_dtype="bfloat16",
                                 timeout=20)
        np.testing.assert_array_equal(result, np.full(4, 2, np.float32))
        with self.assertRaisesRegex(rueda.RuedaError, "only float32"):
            rueda.allreduce(np.ones(4, np.float64), wire_dtype="bfloat16")

    def test_arrays_that_are_not_contiguous(self):
        base = np.arange(24, dtype=np.float32).reshape(4, 6)
        for view in (base[:, ::2], base.T, base[::-1]):
            before = view.copy()
            result = rueda.allreduce(view, prescale_factor=2.0, timeout=20)
            np.testing.assert_array_equal(result, 2 * before)
            np.testing.assert_array_equal(view, before)
        view = base[:, ::2]
        self.assertIs(rueda.allreduce_(view, prescale_factor=2.0, timeout=20), view)
        np.testing.assert_array_equal(base[0], [0, 1, 4, 3, 8, 5])

    def test_read_only_inputs(self):
        tensor = np.ones(4, np.float32)
        tensor.flags.writeable = False
        np.testing.assert_array_equal(rueda.allreduce(tensor, timeout=20), tensor)
        with self.assertRaisesRegex(ValueError, "read-only"):
            rueda.allreduce_(tensor)

    def test_in_place(self):
        tensor = np.ones(4, np.float32)
        self.assertIs(rueda.allreduce_(tensor, prescale_factor=3.0, timeout=20), tensor)
        np.testing.assert_array_equal(tensor, np.full(4, 3, np.float32))

    def test_groups_return_lists(self):
        first, second = np.ones(3, np.float32), np.ones((2, 2), np.int64)
        handle = rueda.grouped_allreduce_async([first, second], op=rueda.Sum)
        results = rueda.synchronize(handle, timeout=20)
        self.assertEqual([r.shape for r in results], [(3,), (2, 2)])

    def test_groups_in_place_return_the_arrays(self):
        first, second = np.ones(3, np.float32), np.ones((4, 2), np.float32)[::2]  # the second is not contiguous
        results = rueda.grouped_allreduce_([first, second], op=rueda.Sum, prescale_factor=3.0, timeout=20)
        self.assertTrue(results[0] is first and results[1] is second)
        self.assertTrue((first == 3).all() and (second == 3).all())
        again = rueda.synchronize(rueda.grouped_allreduce_async_([first], op=rueda.Sum, prescale_factor=2.0), timeout=20)
        self.assertIs(again[0], first)
        self.assertTrue((first == 6).all())

    def test_broadcast(self):
        tensor = np.arange(6, dtype=np.float64).reshape(2, 3)
        np.testing.assert_array_equal(rueda.broadcast(tensor, 0, timeout=20), tensor)
        self.assertIs(rueda.broadcast_(tensor, 0, timeout=20), tensor)
        with self.assertRaisesRegex(ValueError, "root_rank=1"):
            rueda.broadcast(tensor, 1)
        rueda.barrier(timeout=20)

    def test_handles(self):
        handle = rueda.allreduce_async(np.ones(4, np.float32))
        while not rueda.poll(handle):
            time.sleep(0)
        rueda.synchronize(handle)
        with self.assertRaises(ValueError):
            rueda.synchronize(handle)

    def test_threads(self):
        def work(index):
            for _ in range(50):
                rueda.allreduce(np.full(10, index, np.float32), name=f"thread.{index}")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertGreaterEqual(rueda.stats().completions, 200)

    def test_reinit(self):
        for _ in range(5):
            rueda.shutdown()
            self.assertFalse(rueda.is_initialized())
            rueda.init(socket=self.daemon.socket)
            rueda.barrier(timeout=20)


class EmptyTest(DaemonTest):
    def test_reducing_it_copies_nothing(self):
        tensor = rueda.empty((100, 10), np.float32)
        tensor[...] = 2
        rueda.allreduce_(tensor, prescale_factor=2.0, timeout=20)
        rueda.allreduce_(tensor[10:20], prescale_factor=2.0, timeout=20)
        self.assertEqual((tensor[0, 0], tensor[15, 3]), (4, 8))
        self.assertEqual(rueda.stats()[2:4], (0, 0))
        self.assertEqual(tensor.ctypes.data % 64, 0)
        self.assertEqual(rueda.empty(3).shape, (3,))
        self.assertEqual(rueda.empty((2, 0)).shape, (2, 0))

    def test_views_keep_the_memory(self):
        address = rueda.empty((64,), np.int64).ctypes.data
        gc.collect()
        tensor = rueda.empty((64,), np.int64)
        self.assertEqual(tensor.ctypes.data, address, "freed memory is used again")
        view = tensor[10:].reshape(2, 27)
        del tensor
        gc.collect()
        self.assertNotEqual(rueda.empty((64,), np.int64).ctypes.data, address)
        del view
        gc.collect()
        self.assertEqual(rueda.empty((64,), np.int64).ctypes.data, address)

    def test_it_outlives_the_shutdown(self):
        tensor = rueda.empty((1000,), np.float64)
        tensor[...] = 1
        rueda.shutdown()
        tensor[...] += 1
        self.assertEqual(tensor.sum(), 2000)
        rueda.init(socket=self.daemon.socket)
        result = rueda.allreduce(tensor, timeout=20)
        self.assertEqual(result.sum(), 2000)
        self.assertEqual(rueda.stats().bytes_copied_in, 8000, "ordinary memory by now")
        rueda.shutdown()
        with self.assertRaises(rueda.RuedaInternalError):
            rueda.empty((1,))


class HoldTest(DaemonTest):
    arguments = ("hold",)

    def setUp(self):
        super().setUp()
        # No operation ends here, so a clean goodbye would wait for its full time; so the daemon goes first.
        self.addCleanup(self.daemon.process.kill)

    def test_timeout_then_death(self):
        handle = rueda.allreduce_async(np.ones(4, np.float32), name="slow")
        self.assertFalse(rueda.poll(handle))
        with self.assertRaisesRegex(rueda.RuedaTimeoutError, '"slow".*0.01 s'):
            rueda.synchronize(handle, timeout=0.01)
        self.daemon.process.kill()
        with self.assertRaisesRegex(rueda.HorovodInternalError, "daemon") as caught:
            rueda.synchronize(handle)
        self.assertEqual(caught.exception.code, -7)

    def test_ctrl_c_interrupts_the_wait(self):
        # A shell's background jobs begin with the signal ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        handle = rueda.allreduce_async(np.ones(4, np.float32))
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            rueda.synchronize(handle)
        timer.join()
        self.assertFalse(rueda.poll(handle), "the handle is still valid")

    def test_a_forked_child_is_told(self):
        child = os.fork()
        if child == 0:
            try:
                rueda.barrier()
                os._exit(1)
            except rueda.RuedaError as error:
                os._exit(0 if "forked child" in str(error) and not rueda.is_initialized() else 2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
