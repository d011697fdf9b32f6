#!/usr/bin/python3
"""Tests what rueda.jax says where JAX is not installed, or is too old."""

import subprocess
import sys
import unittest


def what_import_says(preparation):
    program = f"import sys, types\n{preparation}\nimport rueda.jax"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return run.returncode, run.stderr.strip().split("\n")[-1]


class JaxMissingTest(unittest.TestCase):

    def test_no_jax(self):
        code, last_line = what_import_says("sys.modules['jax'] = None")
        self.assertEqual(code, 1)
        self.assertEqual(last_line, "ImportError: rueda.jax needs JAX, which cannot be imported; install it with: pip install "
                                    "'jax>=0.5.3'")

    def test_a_jax_that_is_too_old(self):
        code, last_line = what_import_says("jax = sys.modules['jax'] = types.ModuleType('jax')\n"
                                           "jax.__version__, jax.__version_info__ = '0.4.30', (0, 4, 30)")
        self.assertEqual(code, 1)
        self.assertIn("ImportError: rueda.jax needs JAX 0.5.3 or later, and this is 0.4.30", last_line)


if __name__ == "__main__":
    unittest.main()
