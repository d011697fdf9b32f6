#!/usr/bin/python3
"""Tests packages of the Python side, in virtual environments with nothing else: the wheel that holds everything, and the package
alone over a librueda that was built. Builds, and takes numpy and the build tools from PyPI. Arguments: BUILD_DIR SOURCE_DIR.

What the wheel has for JAX, TensorFlow and PyTorch 2 is tried beside the environments that tests/run.sh keeps, and skipped where they are
not there, because they are downloads of up to 3 GB."""

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

# The framework that a package needs.
NEEDS = {"rueda.torch": "torch", "rueda.torch.elastic": "torch", "rueda.distributed": "torch",
         "rueda.tensorflow": "tensorflow", "rueda.tensorflow.keras": "tensorflow", "rueda.keras": "keras", "rueda.jax": "jax"}

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rueda")


def kept(variable, *below, name=""):
    """Returns the Python of an environment that a script of tests/run.sh has made, in $variable or in a folder of the cache, or None."""
    folder = os.path.join(os.environ.get(variable) or os.path.join(CACHE, *below), name)
    return os.path.join(folder, "bin", "python") if os.path.exists(os.path.join(folder, "complete")) else None


JAX_HEADERS, JAX = kept("RUEDA_JAX", name="jax-0.5"), kept("RUEDA_JAX", name="jax-0.10")
TENSORFLOW = kept("RUEDA_TENSORFLOW", "tensorflow", name="2.21.0")
TORCH2 = kept("RUEDA_TORCH2", "torch2")

RANK = """
import numpy as np
import rueda
rueda.init()
total = rueda.allreduce(np.full(1000, 2.0 ** rueda.rank()), op=rueda.Sum, name="sum")
assert (total == 2.0 ** rueda.size() - 1).all()
print("rank", rueda.rank(), "of", rueda.size(), "on node", rueda.cross_rank(), "from", rueda.__file__)
rueda.shutdown()
"""

# Each of these reduces on two ranks and prints which files of Rueda's the process has loaded.
LOADED = """
import sys
paths = {line.split()[-1] for line in open("/proc/self/maps") if "librueda" in line}
print("rank", rank, "has", total, "by", *sorted(paths), flush=True)
"""
COMPILED_JAX = """
import jax, jax.numpy as jnp
import rueda.jax as hvd
hvd.init()
rank = hvd.rank()
total = float(jax.jit(lambda x: hvd.allreduce(x, hvd.Sum))(jnp.full(1000, 2.0 ** rank))[999])
""" + LOADED
JAX_PSUM = """
import os
import jax, numpy as np
jax.distributed.initialize(os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("ranks",))
rank = jax.process_index()
rows = np.full((1, 1000), 2.0 ** rank, np.float32)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("ranks")), rows)
sums = jax.jit(lambda x: x.sum(axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))(x)
total = float(np.asarray(sums.addressable_shards[0].data)[999])
""" + LOADED
IN_A_TF_FUNCTION = """
import tensorflow as tf
import rueda.tensorflow as hvd
hvd.init()
rank = hvd.rank()
total = float(tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.fill([1000], 2.0 ** rank))[999])
""" + LOADED
TORCH_WITHOUT_AN_IMPORT = """
import torch
import torch.distributed as dist
dist.init_process_group("rueda")
rank = dist.get_rank()
sums = torch.full((1000,), 2.0 ** rank)
dist.all_reduce(sums)
total = float(sums[999])
dist.destroy_process_group()
""" + LOADED


@unittest.skipUnless(HAS_VENV, "python3-venv is not installed (deploy/packages.sh test installs it)")
class PackageTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rueda-test-wheel.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.rank = self.write("rank.py", RANK)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

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

    def assert_packages_import(self, folder, python=PYTHON):
        """Imports every package in a folder that this Python can import: those of a framework need it, and say so where it is not there.
        """
        names = [os.path.relpath(os.path.dirname(path), folder).replace("/", ".")
                 for path in glob.glob(f"{folder}/rueda/**/__init__.py", recursive=True)]
        self.assertGreaterEqual(set(names), {"rueda", "rueda.common", *NEEDS})
        probe = "import importlib.util as u, sys; print(*(name for name in sys.argv[1:] if u.find_spec(name)))"
        there = self.run_in("/usr", python, "-c", probe, *set(NEEDS.values())).split()
        importable = [name for name in names if name not in NEEDS or NEEDS[name] in there]
        self.run_in("/usr", python, "-c", "; ".join(f"import {name}" for name in importable), PYTHONPATH=folder)
        for name in set(names) - set(importable):
            refuses = (f"try:\n import {name}\nexcept ImportError as error:\n assert {NEEDS[name]!r} in str(error).lower(), error\n"
                       "else:\n assert False, 'it was imported'\n")
            self.run_in("/usr", python, "-c", refuses, PYTHONPATH=folder)

    def assert_quickstart_takes(self, wheel):
        """Checks that the first command builds nothing if there is a wheel. Its packages must be installed."""
        done = subprocess.run([os.path.join(SOURCE, "deploy", "quickstart.sh"), "--wheel", wheel], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Done in", done.stdout)


class AloneTest(PackageTest):

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


class WheelTest(PackageTest):

    @classmethod
    def setUpClass(cls):
        cls.wheel = None

    def setUp(self):
        super().setUp()
        if WheelTest.wheel is None:
            where = tempfile.mkdtemp(prefix="rueda-test-wheel.")
            WheelTest.addClassCleanup(shutil.rmtree, where)
            WheelTest.wheel = self.build_wheel(where)

    def build_wheel(self, where):
        variables = {}
        if JAX_HEADERS:
            headers = self.run_in("/usr", JAX_HEADERS, "-c", "import jax.ffi; print(jax.ffi.include_dir())").split("\n")[-2]
            variables["CMAKE_ARGS"] = f"-DRUEDA_JAX_INCLUDE={headers}"
        venv = self.make_venv("builder")
        # The compiler settings are those of the presets, so that ccache may hold all of it.
        self.run_in(venv, "pip", "wheel", "--no-deps", "-w", where, SOURCE, CC="cc", CXX="c++", CCACHE_BASEDIR=SOURCE,
                    CCACHE_NOHASHDIR="1", HOME=os.path.expanduser("~"), **variables)
        [wheel] = glob.glob(os.path.join(where, "rueda-*.whl"))
        return wheel

    def test_one_wheel_is_all_that_a_user_needs(self):
        self.assertRegex(os.path.basename(self.wheel), r"^rueda-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
        for name in ("bin/ruedad", "bin/ruedarun", "bin/ruedactl", "lib/librueda.so", "lib/librueda_mpi.so", "lib/librueda_tensorflow.so",
                     "py.typed", "torch/__init__.py", *(["lib/librueda_jax.so"] if JAX_HEADERS else [])):
            self.assertIn(f"rueda/{name}", names)
        self.assert_has_every_package(names)
        self.assertFalse([name for name in names if "/libc.so" in name or "libstdc++" in name])

        self.assert_quickstart_takes(self.wheel)
        user = self.make_venv("user")
        self.run_in(user, "pip", "install", self.wheel)
        self.assert_job_runs(user, "ruedarun")
        self.assertRegex(self.run_in(user, "ruedactl", "--version"), r"\d+\.\d+\.\d+")
        # Every library that is not the C or C++ runtime's comes from the wheel.
        [package] = glob.glob(f"{user}/lib/python3*/site-packages/rueda")
        self.assert_packages_import(os.path.dirname(package))
        # librueda_tensorflow is left out: Python loads librueda and TensorFlow before it.
        found = [name for name in ("librueda_mpi.so", "librueda_jax.so") if f"rueda/lib/{name}" in names]
        for file in ("bin/ruedad", "bin/ruedarun", "bin/ruedactl", "lib/librueda.so", *(f"lib/{name}" for name in found)):
            for line in self.run_in(user, "ldd", f"{package}/{file}").splitlines():
                self.assertRegex(line, rf"{package}/|/lib(c|m|gcc_s|stdc\+\+)\.so\.|ld-linux|linux-vdso")

    def assert_finds(self, library, beside, program, prepare=()):
        """Runs a program on two ranks of an environment that has the wheel, and sees the packages of the Python `beside`, but no compiler.
        `prepare` is a command whose exports the ranks get. All libraries of Rueda's must come from the wheel."""
        user = self.make_venv("user")
        self.run_in(user, "pip", "install", "--no-deps", self.wheel)
        [package] = glob.glob(f"{user}/lib/python3*/site-packages/rueda")
        [seen] = glob.glob(os.path.join(os.path.dirname(beside), "..", "lib", "python3*", "site-packages"))
        with open(os.path.join(os.path.dirname(package), "beside.pth"), "w", encoding="utf-8") as file:
            file.write(os.path.realpath(seen) + "\n")
        variables = {"PATH": f"{user}/bin", "CC": "/nonexistent/cc", "CXX": "/nonexistent/c++", "JAX_PLATFORMS": "cpu"}
        self.assertIsNone(shutil.which("cc", path=variables["PATH"]))
        if prepare:
            said = self.run_in(user, f"{user}/bin/python", *prepare, **variables)
            variables.update(re.findall(r"(?m)^export (\w+)=(\S+)$", said))
        self.assert_packages_import(os.path.dirname(package), f"{user}/bin/python")
        output = self.run_in(user, f"{user}/bin/ruedarun", "-np", "2", "--no-prefix", f"{user}/bin/python",
                             self.write("program.py", program), **variables)
        loaded = re.findall(r"(?m)^rank (\d) has 3\.0 by (.*)$", output)
        self.assertEqual(sorted(rank for rank, _ in loaded), ["0", "1"], output)
        for _, paths in loaded:
            self.assertEqual(set(paths.split(" ")), {f"{package}/lib/{name}" for name in ("librueda.so", library)}, output)

    @unittest.skipUnless(JAX_HEADERS and JAX, "JAX is not there (tests/run.sh --jax keeps both versions)")
    def test_it_has_the_library_of_compiled_jax_programs(self):
        self.assert_finds("librueda_jax.so", JAX, COMPILED_JAX)

    @unittest.skipUnless(JAX, "JAX is not there (tests/run.sh --jax keeps it)")
    def test_it_has_the_library_of_jaxs_own_collectives(self):
        self.assert_finds("librueda_mpi.so", JAX, JAX_PSUM, prepare=("-m", "rueda.jax"))

    @unittest.skipUnless(TENSORFLOW, "TensorFlow is not there (tests/run.sh keeps it)")
    def test_it_has_the_library_of_tensorflows_ops(self):
        self.assert_finds("librueda_tensorflow.so", TENSORFLOW, IN_A_TF_FUNCTION)

    @unittest.skipUnless(TORCH2, "PyTorch 2 is not there (tests/run.sh --torch2 keeps it)")
    def test_pytorch_finds_the_backend_at_its_import(self):
        self.assert_finds("librueda.so", TORCH2, TORCH_WITHOUT_AN_IMPORT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
