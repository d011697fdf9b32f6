"""The names that Horovod users know."""

import inspect
import unittest

import rueda
from rueda import _operations

HOROVOD = ("init shutdown is_initialized rank size local_rank local_size cross_rank cross_size allreduce "
           "allreduce_async grouped_allreduce grouped_allreduce_async broadcast broadcast_async barrier "
           "poll synchronize allreduce_ allreduce_async_ broadcast_ broadcast_async_ Average Sum Min Max "
           "Product HorovodInternalError").split()


class NamingTest(unittest.TestCase):
    def test_horovods_names_are_there_and_public(self):
        for name in HOROVOD:
            self.assertTrue(hasattr(rueda, name), name)
            self.assertIn(name, rueda.__all__)

    def test_everything_public_is_documented(self):
        for name in rueda.__all__:
            value = getattr(rueda, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                self.assertTrue(value.__doc__, name)

    def test_arguments_are_horovods(self):
        parameters = inspect.signature(rueda.allreduce).parameters
        for name in ("tensor", "name", "op", "prescale_factor", "postscale_factor"):
            self.assertIn(name, parameters)
        self.assertEqual(parameters["op"].default, rueda.Average)
        self.assertEqual(parameters["prescale_factor"].default, 1.0)
        self.assertEqual(list(inspect.signature(rueda.broadcast).parameters)[:3],
                         ["tensor", "root_rank", "name"])

    def test_automatic_names_count_per_function(self):
        _operations.reset()
        self.assertEqual(_operations.name_for("allreduce", None), "allreduce.noname.1")
        self.assertEqual(_operations.name_for("allreduce", None), "allreduce.noname.2")
        self.assertEqual(_operations.name_for("broadcast", None), "broadcast.noname.1")
        self.assertEqual(_operations.name_for("allreduce", "mine"), "mine")
        _operations.reset()
        self.assertEqual(_operations.name_for("allreduce", None), "allreduce.noname.1")

    def test_bad_names(self):
        for name in ("", "n" * 256, "a\0b"):
            with self.assertRaises(ValueError):
                _operations.name_for("allreduce", name)
        with self.assertRaises(TypeError):
            _operations.name_for("allreduce", 3)


if __name__ == "__main__":
    unittest.main()
