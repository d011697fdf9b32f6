"""Tests that the type hints hold together, and that every public function and class says what it does."""

import inspect
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import rueda

PACKAGE = Path(rueda.__file__).resolve().parent
HAS_MYPY = subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True, check=False).returncode == 0

try:
    import rueda.distributed as distributed
    import rueda.torch as hvd
except ImportError:
    distributed = hvd = None


def public(module):
    """Yields (name, object) of the functions and classes that a module offers, and of their public methods."""
    for name in module.__all__:
        item = getattr(module, name)
        if inspect.isclass(item) and item.__module__.startswith("rueda"):
            yield f"{module.__name__}.{name}", item
            for member, method in vars(item).items():
                if inspect.isfunction(method) and not member.startswith("_"):
                    yield f"{module.__name__}.{name}.{member}", method
        elif inspect.isfunction(item):
            yield f"{module.__name__}.{name}", item


class TypesTest(unittest.TestCase):
    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_every_public_function_has_a_docstring_and_types(self):
        count = 0
        for module in filter(None, (rueda, distributed, hvd, hvd and hvd.elastic)):
            for name, item in public(module):
                with self.subTest(name):
                    count += 1
                    self.assertTrue((inspect.getdoc(item) or "").strip(), "it has no docstring")
                    if inspect.isfunction(item):
                        signature = inspect.signature(item)
                        self.assertIsNot(signature.return_annotation, inspect.Signature.empty, "what does it return?")
                        untyped = [parameter.name for parameter in signature.parameters.values()
                                   if parameter.annotation is inspect.Parameter.empty and parameter.name != "self"]
                        self.assertEqual(untyped, [])
        self.assertGreater(count, 40)

    @unittest.skipUnless(HAS_MYPY, "mypy is not installed (deploy/packages.sh test installs it)")
    def test_mypy_finds_nothing(self):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", cache], cwd=PACKAGE.parent,
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
