"""Tests the names that Horovod users know."""

import inspect
import re
import unittest
from pathlib import Path

import rueda
from rueda._core import _counted, _operations

HOROVOD = ("init shutdown is_initialized rank size local_rank local_size cross_rank cross_size allreduce "
           "allreduce_async grouped_allreduce grouped_allreduce_async broadcast broadcast_async barrier "
           "poll synchronize allreduce_ allreduce_async_ broadcast_ broadcast_async_ Average Sum Min Max "
           "Product HorovodInternalError grouped_allreduce_ grouped_allreduce_async_ allgather allgather_async "
           "grouped_allgather grouped_allgather_async alltoall alltoall_async reducescatter reducescatter_async "
           "grouped_reducescatter grouped_reducescatter_async join ProcessSet add_process_set remove_process_set "
           "global_process_set").split()
ROOT = Path(__file__).resolve().parents[4]


class NamingTest(unittest.TestCase):
    def test_horovods_names_are_there_and_public(self):
        for name in HOROVOD:
            self.assertTrue(hasattr(rueda, name), name)
            self.assertIn(name, rueda.__all__)

    def test_there_is_one_version(self):
        for path in ("CMakeLists.txt", "pyproject.toml", "client/python/pyproject.toml"):
            found = re.search(r'VERSION (\d+\.\d+\.\d+)|^version = "(.*)"', (ROOT / path).read_text(), re.MULTILINE)
            self.assertEqual(found.group(1) or found.group(2), rueda.__version__, path)

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

    def test_automatic_names_come_again(self):
        """Each call once had a new name, and a job ended after 1,048,576."""
        for function, most in (("allreduce", 1024), ("grouped_allreduce", 64)):
            _operations.reset()
            names = [_operations.name_for(function, None) for _ in range(3 * most)]
            self.assertEqual(names, 3 * [f"{function}.noname.{i + 1}" for i in range(most)])

    def test_a_set_under_a_number_that_comes_again_counts_anew(self):
        _operations.reset()
        for set_id in (0, 7):
            _operations.name_for("allreduce", None, set_id)
        _counted.forget_set(7)
        self.assertEqual(_operations.name_for("allreduce", None, 7), "allreduce.noname.1")
        self.assertEqual(_operations.name_for("allreduce", None), "allreduce.noname.2")

    def test_every_package_is_in_the_wheel(self):
        """rueda.distributed was once missing; wheel_test builds the wheel."""
        try:
            from setuptools import find_packages
        except ImportError:
            self.skipTest("setuptools is not installed")
        folder = ROOT / "client" / "python"
        included = re.search(r'\[tool.setuptools.packages.find\]\ninclude = \["(.*)"\]', (folder / "pyproject.toml").read_text())
        there = {".".join(path.parent.relative_to(folder).parts) for path in folder.glob("rueda*/**/__init__.py")}
        self.assertEqual(set(find_packages(str(folder), include=[included.group(1)])), there)

    def test_bad_names(self):
        for name in ("", "n" * 256, "a\0b"):
            with self.assertRaises(ValueError):
                _operations.name_for("allreduce", name)
        with self.assertRaises(TypeError):
            _operations.name_for("allreduce", 3)


if __name__ == "__main__":
    unittest.main()
