"""Tests where librueda is looked for, and what a program is told that cannot attach."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from rueda._core import _library

JOB = {"RUEDA_JOB_ID": "job", "RUEDA_JOB_TOKEN": "00" * 32, "RANK": "0", "LOCAL_RANK": "0"}


def run_init(**environment):
    """Returns the last line that a process printed which called rueda.init() in this environment."""
    kept = {k: v for k, v in os.environ.items() if k not in JOB and k != "RUEDA_SOCKET"}
    done = subprocess.run([sys.executable, "-c", "import rueda; rueda.init()"], capture_output=True,
                          text=True, timeout=30, check=False, env={**kept, **environment})
    assert done.returncode == 1, done
    return done.stderr.strip().splitlines()[-1]


class LookupTest(unittest.TestCase):
    def test_the_variable_stands_alone(self):
        with mock.patch.dict(os.environ, RUEDA_LIBRARY="/somewhere/librueda.so"):
            self.assertEqual(_library.candidates(), ["/somewhere/librueda.so"])

    def test_order_without_the_variable(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ):
            del os.environ["RUEDA_LIBRARY"]
            root = Path(folder)
            package = root / "client" / "python" / "rueda"
            (root / "client/include/rueda").mkdir(parents=True)
            (root / "client/include/rueda/rueda.h").touch()
            for preset in ("asan", "debug", "release"):
                (root / "build" / preset / "lib").mkdir(parents=True)
                (root / "build" / preset / "lib" / "librueda.so").touch()
            with mock.patch.object(_library, "_PACKAGE", package):
                found = _library.candidates()
            self.assertEqual(found[0], str(package / "lib" / "librueda.so"))
            self.assertEqual([Path(p).parts[-3] for p in found[1:4]], ["release", "asan", "debug"])
            self.assertEqual(found[4:], ["librueda.so.0"])

    def test_a_missing_library_lists_where_it_was_looked_for(self):
        with self.assertRaises(ImportError) as caught:
            _library._load_first(["/nonexistent/librueda.so", "librueda-nonexistent.so.0"])
        for word in ("/nonexistent/librueda.so", "librueda-nonexistent.so.0", "RUEDA_LIBRARY"):
            self.assertIn(word, str(caught.exception))

    def test_another_library_is_not_taken_for_it(self):
        with self.assertRaises(ImportError) as caught:
            _library._load_first(["libc.so.6"])
        self.assertIn("rueda_init", str(caught.exception))


class AttachTest(unittest.TestCase):
    def test_a_missing_socket_names_it_and_the_remedy(self):
        line = run_init(RUEDA_SOCKET="/nonexistent/ruedad.sock", **JOB)
        for word in ("/nonexistent/ruedad.sock", "ruedarun", "systemctl start ruedad", "RUEDA_SOCKET"):
            self.assertIn(word, line)

    def test_outside_of_a_job(self):
        line = run_init(RANK="0")
        for word in ("RuedaError", "RUEDA_JOB_ID", "ruedarun"):
            self.assertIn(word, line)


if __name__ == "__main__":
    unittest.main()
