#!/usr/bin/python3
"""Tests the installed package: that `import torch` finds the backend "rueda", costs little, and never fails for it.

RUEDA_TEST_PYTHON is a Python with PyTorch 2.5 or later, which Debian does not have."""

import os
import shutil
import subprocess
import tempfile
import unittest

import harness
import installed
from harness import SOURCE, IntegrationTest

PYTHON = os.environ.get("RUEDA_TEST_PYTHON", harness.PYTHON)
MAY_COST_S = 0.005

TWO_GROUPS = """
import sys
import torch
import torch.distributed as dist
assert not [name for name in sys.modules if name.split(".")[0] == "rueda"], "import torch has imported rueda"
for turn in range(3):
    dist.init_process_group("rueda")   # finds the store of the environment again each time
    total = torch.ones(4)
    dist.all_reduce(total)
    assert total[0] == dist.get_world_size() == 2
    dist.destroy_process_group()
import rueda.distributed               # does no harm
print("ok", dist.distributed_c10d.Backend.RUEDA)
"""

COST = """
import os, sys, time
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
from importlib.metadata import entry_points
[ours] = [one for one in entry_points(group="torch.backends") if one.name == "rueda"]
begin = time.perf_counter()
ours.load()()
print(time.perf_counter() - begin)
assert torch.distributed.Backend.RUEDA == "rueda"
"""

INIT = """
import torch
import torch.distributed as dist
print("imported")
dist.init_process_group({backend!r}, store=dist.HashStore(), rank=0, world_size=1)
"""


def has_autoload():
    program = "import torch\ntorch._import_device_backends"
    return subprocess.run([PYTHON, "-c", program], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_autoload(), "PyTorch 2.5 or later is not there (tests/run.sh --torch2 installs it)")
class AutoloadTest(IntegrationTest):

    @classmethod
    def setUpClass(cls):
        cls.where = tempfile.mkdtemp(prefix="rueda-test-autoload.")
        cls.addClassCleanup(shutil.rmtree, cls.where)
        cls.python = installed.make_environment(PYTHON, SOURCE, cls.where)

    def setUp(self):
        super().setUp()
        self.env.pop("PYTHONPATH")  # has the source, of which the installed package is independent

    def run_python(self, text, **variables):
        run = self.start([self.python, "-c", text], extra_env=variables)
        return run.exit_code(), run.output()

    def assert_torch_is_there(self, **variables):
        code, output = self.run_python("import torch\nprint('torch is', torch.ones(1).item())", **variables)
        self.assertEqual(code, 0, output)
        self.assertIn("torch is 1.0", output)
        return output

    def shadow(self, **modules):
        """Returns a folder whose modules are found instead of the installed ones."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, text in modules.items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "__init__.py"), "w", encoding="utf-8") as file:
                file.write(text)
        return folder

    def test_no_import_is_needed(self):
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", self.python, "-c", TWO_GROUPS)
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertEqual(run.output().count("ok rueda"), 2, run.output())

    def test_it_costs_import_torch_next_to_nothing(self):
        took = []
        for _ in range(3):
            code, output = self.run_python(COST)
            self.assertEqual(code, 0, output)
            took.append(float(output))
        self.assertLess(min(took), MAY_COST_S, took)

    def test_switched_off_it_is_not_there(self):
        code, output = self.run_python(INIT.format(backend="rueda"), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertNotEqual(code, 0)
        self.assertIn("imported", output)
        self.assertNotIn("librueda", output)

    def test_import_torch_survives_whatever_is_broken(self):
        broken = "raise SystemError('broken on purpose')\n"
        for modules in ({"rueda": broken}, {"numpy": "raise ModuleNotFoundError('no numpy')\n"}):
            with self.subTest(broken=list(modules)):
                where = self.shadow(**modules)
                self.assert_torch_is_there(PYTHONPATH=where)
                self.assert_torch_is_there(PYTHONPATH=where, RUEDA_TORCH_REPLACES="gloo")
                code, output = self.run_python(INIT.format(backend="rueda"), PYTHONPATH=where)
                self.assertNotEqual(code, 0)
                self.assertRegex(output, "broken on purpose|no numpy")
        self.assert_torch_is_there(RUEDA_LIBRARY="/nowhere/librueda.so", RUEDA_TORCH_REPLACES="gloo")

    def test_a_backend_that_cannot_be_registered_is_said(self):
        spoilt = self.shadow(sitecustomize="""
import sys
class Spoil:
    def find_spec(self, name, path, target=None):
        if name == "rueda_autoload":
            import torch.distributed as dist
            def refuse(*arguments, **named):
                raise TypeError("another form of register_backend")
            dist.Backend.register_backend = refuse
sys.meta_path.insert(0, Spoil())
""")
        output = self.assert_torch_is_there(PYTHONPATH=spoilt)
        self.assertIn("is not there without `import rueda.distributed`: TypeError('another form", output)
        self.assert_torch_is_there(PYTHONPATH=spoilt, PYTHONWARNINGS="ignore")

    def test_a_wrong_name_to_take_is_an_error_of_the_first_group(self):
        self.assert_torch_is_there(RUEDA_TORCH_REPLACES="glue")
        code, output = self.run_python(INIT.format(backend="gloo"), RUEDA_TORCH_REPLACES="glue")
        self.assertNotEqual(code, 0)
        self.assertIn("imported", output)
        self.assertIn("RUEDA_TORCH_REPLACES='glue' must be \"gloo\"", output)

    def test_the_name_is_taken_without_an_import(self):
        text = TWO_GROUPS.replace('"rueda")   #', '"gloo")   #').replace("assert not [", "[").replace(', "import torch has imported rueda"', "")
        text += "from torch.distributed import init_process_group\ninit_process_group('gloo')\nprint(type(dist.group.WORLD).__name__)\n"
        run = self.ruedarun("-np", "2", self.python, "-c", text, extra_env={"RUEDA_TORCH_REPLACES": "gloo"})
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertEqual(run.output().count("ProcessGroupRueda"), 2, run.output())


if __name__ == "__main__":
    harness.main()
