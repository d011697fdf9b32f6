"""Tests what the Python package refuses before it submits anything."""

import os
import pickle
import subprocess
import sys
import unittest
import unittest.mock

import numpy as np

import rueda
from rueda._core import _dtypes, _operations, _process_sets


class DTypeTest(unittest.TestCase):
    def test_codes_are_those_of_the_c_header(self):
        expected = {"float32": 0, "float64": 1, "float16": 2, "int32": 4, "int64": 5, "int8": 6, "uint8": 7,
                    "bool": 8, "int16": 9, "uint16": 10, "uint32": 11, "uint64": 12, "complex64": 13, "complex128": 14}
        for name, code in expected.items():
            self.assertEqual(_dtypes.code_of(np.zeros(2, name)), code, name)
            self.assertEqual(_dtypes.code_of(np.zeros(2, name), name), code, name)

    def test_bfloat16_bits_need_the_argument(self):
        bits = np.zeros(2, np.uint16)
        self.assertEqual(_dtypes.code_of(bits, "bfloat16"), 3)
        self.assertEqual(_dtypes.code_of(bits), 10)
        with self.assertRaisesRegex(TypeError, "float32"):
            _dtypes.code_of(np.zeros(2, np.float32), "bfloat16")

    def test_other_dtypes_are_refused_by_name(self):
        for kind in (np.longdouble, np.clongdouble, "M8[s]", object, "U3"):
            with self.assertRaisesRegex(TypeError, "float32"):
                _dtypes.code_of(np.zeros(2, kind))

    def test_the_other_byte_order_is_refused_with_a_remedy(self):
        with self.assertRaisesRegex(TypeError, "byte order.*newbyteorder"):
            _dtypes.code_of(np.zeros(2, ">f4"))

    def test_wire_dtypes_by_name(self):
        codes = [_dtypes.wire_code_of(name) for name in (None, "float16", "bfloat16", np.float16, np.dtype("float16"))]
        self.assertEqual(codes, [0, 1, 2, 1, 1])
        for wrong in ("float32", "int8", 1):
            with self.assertRaisesRegex(ValueError, "bfloat16"):
                rueda.allreduce(np.zeros(2, np.float32), wire_dtype=wrong)

    def test_only_arrays_are_taken(self):
        for value in ([1.0], 1.0, "x", None):
            with self.assertRaisesRegex(TypeError, "NumPy array"):
                rueda.allreduce(value)
        with self.assertRaisesRegex(TypeError, "masked"):
            rueda.allreduce(np.ma.masked_array([1.0], [True]))
        with self.assertRaisesRegex(ValueError, "dimensions"):
            rueda.allreduce(np.zeros((1,) * 9))
        self.assertEqual(_dtypes.as_array(np.float32(3)).shape, ())

    def test_bfloat16_without_ml_dtypes_says_what_to_do(self):
        try:
            import ml_dtypes
        except ImportError:
            with self.assertRaisesRegex(AttributeError, "ml_dtypes"):
                getattr(rueda, "bfloat16")  # noqa: B009
        else:
            self.assertEqual(rueda.bfloat16, np.dtype(ml_dtypes.bfloat16))


class ProcessSetTest(unittest.TestCase):
    def test_one_that_was_not_added_is_refused(self):
        with self.assertRaisesRegex(ValueError, "has not been added; use rueda.add_process_set"):
            _process_sets.id_of(rueda.ProcessSet([1, 0]))
        with self.assertRaisesRegex(TypeError, "must be a rueda.ProcessSet, not int"):
            _process_sets.id_of(1)
        self.assertEqual(_process_sets.id_of(None), 0)
        self.assertEqual(_process_sets.id_of(rueda.global_process_set), 0)

    def test_what_init_adds(self):
        with unittest.mock.patch.dict(os.environ, {"RUEDA_PROCESS_SETS": "0,1; 2,3"}):
            self.assertEqual(_process_sets.initial(None), [[0, 1], [2, 3]])
            self.assertEqual(_process_sets.initial([[5]]), [[5]])
        with unittest.mock.patch.dict(os.environ, {"RUEDA_PROCESS_SETS": "0,one"}):
            with self.assertRaisesRegex(ValueError, "RUEDA_PROCESS_SETS='0,one' is not lists of ranks"):
                _process_sets.initial(None)
        self.assertEqual(_process_sets.initial(None), [])

    def test_the_ranks_are_in_order(self):
        self.assertEqual(rueda.ProcessSet([3, 1]).ranks, [1, 3])


class OptionTest(unittest.TestCase):
    def test_operators_have_the_numbers_of_the_c_header(self):
        self.assertEqual([rueda.Sum, rueda.Average, rueda.Min, rueda.Max, rueda.Product],
                         [0, 1, 2, 3, 4])

    def test_bad_operators_and_scales(self):
        with self.assertRaisesRegex(ValueError, "op=9"):
            rueda.allreduce(np.zeros(2), op=9)
        for factor in (float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "finite"):
                rueda.allreduce(np.zeros(2), prescale_factor=factor)

    def test_a_priority_has_32_bits(self):
        for priority in (2**31, -2**31 - 1):
            with self.assertRaisesRegex(ValueError, "32 bits"):
                rueda.allreduce(np.zeros(2), priority=priority)

    def test_groups_need_a_list(self):
        for tensors in ([], np.zeros((2, 2))):
            with self.assertRaisesRegex(ValueError, "list"):
                rueda.grouped_allreduce(tensors)

    def test_unknown_handles(self):
        for function in (rueda.synchronize, rueda.poll):
            with self.assertRaisesRegex(ValueError, "77"):
                function(77)

    def test_empty_refuses_objects_and_negative_shapes(self):
        with self.assertRaisesRegex(TypeError, "objects"):
            rueda.empty((2,), object)
        with self.assertRaisesRegex(ValueError, "negative"):
            rueda.empty((2, -1))


class BeforeInitTest(unittest.TestCase):
    def test_every_function_says_init(self):
        self.assertFalse(rueda.is_initialized())
        rueda.shutdown()
        calls = [rueda.rank, rueda.size, rueda.local_rank, rueda.local_size, rueda.cross_rank,
                 rueda.cross_size, rueda.node_id, rueda.stats, rueda.barrier,
                 lambda: rueda.allreduce(np.zeros(2)), lambda: rueda.broadcast(np.zeros(2), 0),
                 lambda: rueda.grouped_allreduce([np.zeros(2)])]
        for call in calls:
            with self.assertRaisesRegex(ValueError, "rueda.init"):
                call()

    def test_importing_loads_no_library(self):
        code = "import rueda, sys; from rueda._core import _library; sys.exit(_library.loaded() is not None)"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


class ErrorTest(unittest.TestCase):
    def test_codes_choose_the_class(self):
        from rueda._core._errors import error_for
        self.assertIs(type(error_for(-2, "x")), rueda.RuedaError)
        self.assertIsInstance(error_for(-4, "x"), TimeoutError)
        for code in (-5, -6, -7, -8):
            self.assertIsInstance(error_for(code, "x"), rueda.HorovodInternalError)
        self.assertEqual(error_for(-2, "x").code, -2)

    def test_they_survive_pickling(self):
        error = pickle.loads(pickle.dumps(rueda.RuedaTimeoutError(-4, "late")))
        self.assertEqual((type(error), error.code, str(error)), (rueda.RuedaTimeoutError, -4, "late"))

    def test_the_timeout_is_the_callers(self):
        text = 'tensor "x" did not finish within 500 ms; some rank is late'
        self.assertEqual(_operations._timeout_text(3.0, text),
                         'tensor "x" did not finish within 3.0 s; some rank is late')


if __name__ == "__main__":
    unittest.main()
