#!/usr/bin/python3
"""Tests that rueda.torch has every name of horovod.torch 0.28.1, with its signature.

horovod_signatures.json is made from that release's source by horovod_signatures.py. Intended differences are listed here."""

import importlib.util
import inspect
import json
import os
import subprocess
import sys
import unittest

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import rueda.torch as hvd
    import torch

# The names whose parameters differ, and the reasons.
DIFFERENT = {
    "ProcessSet.__init__": "takes ranks alone, no MPI communicator",
}


def load_table():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "horovod_signatures.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def found_signature(function):
    """Returns a signature in the form of the table, but with the defaults themselves."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [(marks.get(one.kind, "") + one.name, one.default) for one in inspect.signature(function).parameters.values()
            if one.name != "self"]


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")


class HorovodApiTest(unittest.TestCase):

    def check(self, name, function, wanted):
        if name in DIFFERENT:
            return
        found = found_signature(function)
        self.assertEqual([one[0] for one in found], [one[0] for one in wanted], name)
        for (parameter, default), (_, text) in zip(found, wanted):
            if text is None:
                self.assertIs(default, inspect.Parameter.empty, f"{name}({parameter})")
            else:
                self.assertEqual(default, eval(text, dict(vars(hvd))), f"{name}({parameter})")

    def holder(self, name):
        if name == "DistributedOptimizer()":
            parameter = torch.nn.Parameter(torch.zeros(1))
            return type(hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1)))
        value = hvd
        for part in name.split("."):
            value = getattr(value, part)
        return value

    def test_every_name_is_there_with_its_signature(self):
        table = load_table()
        self.assertGreater(len(table), 70)
        for name, wanted in table.items():
            with self.subTest(name=name):
                value = self.holder(name)
                if "function" in wanted:
                    self.check(name, value, wanted["function"])
                for method, signature in wanted.get("class", {}).items():
                    if name == "DistributedOptimizer()" and method in ("zero_grad", "load_state_dict"):
                        continue  # the method belongs to the wrapped optimizer
                    self.check(f"{name}.{method}", getattr(value, method), signature)

    def test_all_names_are_exported(self):
        for name in load_table():
            if "." not in name and "(" not in name:
                self.assertIn(name, hvd.__all__)
        self.assertIn("is_homogeneous", hvd.__all__)

    def test_a_signature_that_differs_is_found(self):
        with self.assertRaises(AssertionError):
            self.check("x", lambda tensor, name=None: None, [["tensor", None]])
        with self.assertRaises(AssertionError):
            self.check("x", lambda tensor, factor=2.0: None, [["tensor", None], ["factor", "1.0"]])

    def test_the_package_itself_does_not_import_torch(self):
        code = "import sys, rueda; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
