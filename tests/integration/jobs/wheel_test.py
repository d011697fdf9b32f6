#!/usr/bin/python3
"""Tests packages of the Python side, in virtual environments with nothing else: the wheel that holds everything, and the package
alone over a librueda that was built. Builds, and takes numpy and the build tools from PyPI. Arguments: BUILD_DIR SOURCE_DIR."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

BUILD, SOURCE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
PYTHON = "/usr/bin/python3"
HAS_VENV = subprocess.run([PYTHON, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0

HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0

RANK = """
import numpy as np
import rueda
rueda.init()
total = rueda.allreduce(np.full(1000, 2.0 ** rueda.rank()), op=rueda.Sum, name="sum")
assert (total == 2.0 ** rueda.size() - 1).all()
print("rank", rueda.rank(), "of", rueda.size(), "on node", rueda.cross_rank(), "from", rueda.__file__)
rueda.shutdown()
"""


@unittest.skipUnless(HAS_VENV, "python3-venv is not installed (deploy/packages.sh test installs it)")
class WheelTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rueda-test-wheel.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.rank = os.path.join(self.folder, "rank.py")
        with open(self.rank, "w", encoding="utf-8") as file:
            file.write(RANK)

    def run_in(self, venv, *command, **variables):
        """Returns what a command said in an environment that knows of nothing but a virtual environment."""
        environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": self.folder, "TMPDIR": self.folder, **variables}
        for name in ("PIP_INDEX_URL", "PIP_CERT", "HTTPS_PROXY", "https_proxy", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE",
                     "CCACHE_DIR", "PIP_CONFIG_FILE", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"):
            if name in os.environ:
                environment.setdefault(name, os.environ[name])
        done = subprocess.run(command, env=environment, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=3000, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def make_venv(self, name):
        venv = os.path.join(self.folder, name)
        self.run_in("/usr", PYTHON, "-m", "venv", venv)
        return venv

    def assert_job_runs(self, venv, ruedarun, **variables):
        output = self.run_in(venv, ruedarun, "--no-prefix", "-np", "2", "--virtual-nodes", "2", f"{venv}/bin/python",
                             self.rank, **variables)
        for number in range(2):
            self.assertIn(f"rank {number} of 2 on node {number} from {venv}", output)

    def assert_has_every_package(self, names):
        """Checks that every module of the source is in the wheel, and that every package of it can be imported (if PyTorch can).
        """
        root = os.path.join(SOURCE, "client", "python")
        modules = {os.path.relpath(path, root) for path in glob.glob(f"{root}/rueda/**/*.py", recursive=True)}
        self.assertIn("rueda/distributed/__init__.py", modules)
        self.assertEqual(sorted(modules - set(names)), [])
        # PyTorch finds the backend by these at `import torch`; autoload_test looks whether it does.
        self.assertIn("rueda_autoload/__init__.py", names)
        self.assertTrue([name for name in names if re.fullmatch(r"rueda-[^/]*\.dist-info/entry_points\.txt", name)], names)

    def assert_packages_import(self, folder):
        packages = [os.path.relpath(os.path.dirname(path), folder).replace("/", ".")
                    for path in glob.glob(f"{folder}/rueda/**/__init__.py", recursive=True)]
        self.assertGreaterEqual(set(packages), {"rueda", "rueda.common", "rueda.distributed", "rueda.torch", "rueda.torch.elastic"})
        without_torch = ("rueda", "rueda._core", "rueda.common")
        tries = "; ".join(f"import {package}" for package in packages if HAS_TORCH or package in without_torch)
        self.run_in("/usr", PYTHON, "-c", tries, PYTHONPATH=folder)

    def assert_quickstart_takes(self, wheel):
        """Checks that the first command builds nothing if there is a wheel. Its packages must be installed."""
        done = subprocess.run([os.path.join(SOURCE, "deploy", "quickstart.sh"), "--wheel", wheel], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Done in", done.stdout)

    def test_one_wheel_is_all_that_a_user_needs(self):
        venv = self.make_venv("builder")
        # The compiler settings are those of the presets, so that ccache may hold all of it.
        self.run_in(venv, "pip", "wheel", "--no-deps", "-w", self.folder, SOURCE, CC="cc", CXX="c++", CCACHE_BASEDIR=SOURCE,
                    CCACHE_NOHASHDIR="1", HOME=os.path.expanduser("~"))
        [wheel] = glob.glob(os.path.join(self.folder, "rueda-*.whl"))
        self.assertRegex(os.path.basename(wheel), r"^rueda-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        for name in ("bin/ruedad", "bin/ruedarun", "bin/ruedactl", "lib/librueda.so", "lib/librueda_mpi.so", "py.typed",
                     "torch/__init__.py"):
            self.assertIn(f"rueda/{name}", names)
        self.assert_has_every_package(names)
        self.assertFalse([name for name in names if "/libc.so" in name or "libstdc++" in name])

        self.assert_quickstart_takes(wheel)
        user = self.make_venv("user")
        self.run_in(user, "pip", "install", wheel)
        self.assert_job_runs(user, "ruedarun")
        self.assertRegex(self.run_in(user, "ruedactl", "--version"), r"\d+\.\d+\.\d+")
        # Every library that is not the C or C++ runtime's comes from the wheel.
        [package] = glob.glob(f"{user}/lib/python3*/site-packages/rueda")
        self.assert_packages_import(os.path.dirname(package))
        for program in ("ruedad", "ruedarun", "ruedactl"):
            for line in self.run_in(user, "ldd", f"{package}/bin/{program}").splitlines():
                self.assertRegex(line, rf"{package}/|/lib(c|m|gcc_s|stdc\+\+)\.so\.|ld-linux|linux-vdso")

    def test_the_package_alone_uses_a_librueda_that_is_there(self):
        venv = self.make_venv("alone")
        copy = os.path.join(self.folder, "copy")  # is used because setuptools leaves a build folder behind
        shutil.copytree(os.path.join(SOURCE, "client", "python"), copy)
        self.run_in(venv, "pip", "wheel", "--no-deps", "-w", self.folder, copy)
        [wheel] = glob.glob(os.path.join(self.folder, "rueda-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            self.assert_has_every_package(archive.namelist())
        self.run_in(venv, "pip", "install", wheel)
        [package] = glob.glob(f"{venv}/lib/python3*/site-packages/rueda")
        self.assert_packages_import(os.path.dirname(package))
        self.assert_job_runs(venv, os.path.join(BUILD, "bin", "ruedarun"),
                             RUEDA_LIBRARY=os.path.join(BUILD, "lib", "librueda.so"))
        with self.assertRaisesRegex(AssertionError, "install librueda, or set RUEDA_LIBRARY to its path"):
            self.run_in(venv, f"{venv}/bin/python", "-c", "import rueda; rueda.init()")


if __name__ == "__main__":
    unittest.main(verbosity=2)
