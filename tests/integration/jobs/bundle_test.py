#!/usr/bin/python3
"""Tests deploy/bundle.sh: the bundle's size, what it needs, and that it runs in a root that has libc and a shell, and nothing
else. Builds with the flags of the release build. Arguments: BUILD_DIR SOURCE_DIR."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(sys.argv.pop(2))
sys.argv.pop(1)

MOST_BYTES = 60_000_000
GLIBC = (2, 36)
# These are libc's own libraries, which every such machine has.
LIBC = re.compile(r"^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so\.\d+$")
PROGRAMS = ("ruedad", "ruedarun", "ruedactl", "rueda-bench", "rueda-gpu-bench", "rueda-gpu-job-bench", "gpu_test", "gpu_conformance_test")
# The scripts need these tools, which any machine has.
TOOLS = ("bash", "cat", "date", "dirname", "grep", "head", "mkdir", "mv", "rm", "tail")


def run(*command, timeout=120, check=True):
    done = subprocess.run(command, cwd=SOURCE, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=timeout, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries_of(path):
    """Returns the paths of the libraries that a program of this machine loads."""
    return re.findall(r"(/\S+) \(0x", run("ldd", path).stdout)


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="rueda-test-bundle.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.file = os.path.join(cls.folder, "bundle.tar.gz")
        cls.said = run("deploy/bundle.sh", cls.file, timeout=3000).stdout
        cls.root = os.path.join(cls.folder, "root")
        os.mkdir(cls.root)
        run("tar", "-C", cls.root, "-xzf", cls.file)
        cls.bundle = os.path.join(cls.root, "rueda")
        cls.make_root()

    @classmethod
    def make_root(cls):
        """Makes a root that has, beside the bundle, libc, tools with what they load, and no library that the bundle could miss.
        """
        for tool in TOOLS:
            program = os.path.realpath(shutil.which(tool))
            for path in (program, *libraries_of(program)):
                target = cls.root + (f"/usr/bin/{tool}" if path == program else path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(path, target)
        for name in ("libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0"):
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", f"{cls.root}/lib/x86_64-linux-gnu/")
        for name in ("dev", "proc", "sys", "tmp", "etc", "bin"):
            os.makedirs(os.path.join(cls.root, name), exist_ok=True)
        for link, target in (("bin/bash", "/usr/bin/bash"), ("bin/sh", "/usr/bin/bash")):
            os.symlink(target, os.path.join(cls.root, link))
        with open(os.path.join(cls.root, "etc", "hosts"), "w", encoding="utf-8") as file:
            file.write("127.0.0.1 localhost\n")

    def files(self):
        for folder, _, names in os.walk(self.bundle):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path) and is_elf(path):
                    yield path

    def in_root(self, command, check=True):
        """Runs a command in the root, in a namespace of its own, so that nothing of it outlives the test."""
        mounts = "".join(f"mount --rbind /{name} {self.root}/{name}\n" for name in ("dev", "sys"))
        script = (f"set -e\n{mounts}mount -t proc proc {self.root}/proc\n"
                  f"exec chroot {self.root} /usr/bin/bash -c '{command}'")
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", "HOME=/tmp",
                   "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "bash", "-c", script, timeout=300, check=check)

    def needs_root(self):
        if os.geteuid() != 0 or run("unshare", "--mount", "true", check=False).returncode != 0:
            self.skipTest("only root makes a root to run in")

    def test_it_is_small_and_says_what_it_is(self):
        self.assertLess(os.path.getsize(self.file), MOST_BYTES)
        with open(os.path.join(self.bundle, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        described = run("git", "describe", "--always", "--dirty", "--tags", check=False)
        if described.returncode == 0:
            self.assertIn(f"Made from {described.stdout.strip()} ", readme)
        has_plugin = os.path.exists(os.path.join(self.bundle, "lib", "librueda_cuda.so"))
        self.assertEqual(has_plugin, "It has the GPU plugin" in readme)
        self.assertEqual(has_plugin, "no CUDA toolkit" not in self.said)
        for name in (*(f"bin/{program}" for program in PROGRAMS), "lib/librueda.so", "LICENSE", "licences/libgrpc-dev",
                     "licences/libhwy1", "python/rueda/__init__.py", "python/rueda/lib/librueda.so",
                     "tests/gpu/run.sh", "tests/gpu/training_test.py", "tests/integration/device/device_test.py",
                     "client/python/rueda/_torch_common/_device.py", "bench/gpu/run.sh"):
            self.assertTrue(os.path.exists(os.path.join(self.bundle, name)), name)
        # The bundle must have all that its tests name, or import from beside them.
        with open(os.path.join(self.bundle, "tests", "gpu", "run.sh"), encoding="utf-8") as file:
            wanted = set(re.findall(r"tests/\S+\.py", file.read()))
        self.assertIn("tests/integration/device/device_containers_test.py", wanted)
        here = {}
        for folder, _, names in os.walk(os.path.join(SOURCE, "tests", "integration")):
            here.update({name[:-3]: os.path.relpath(os.path.join(folder, name), SOURCE)
                         for name in names if name.endswith(".py")})
        looked_at = set()
        while wanted - looked_at:
            name = (wanted - looked_at).pop()
            looked_at.add(name)
            with open(os.path.join(self.bundle, name), encoding="utf-8") as file:
                text = file.read()
            named = re.findall(r"^(?:from|import) (\w+)|\"(\w+)\.py\"", text, re.MULTILINE)
            wanted |= {here[one] for pair in named for one in pair if one in here}

    def test_every_library_is_there_or_is_of_libc(self):
        there = set(os.listdir(os.path.join(self.bundle, "lib")))
        for path in self.files():
            dynamic = run("readelf", "--dynamic", "--wide", path).stdout
            for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                self.assertTrue(LIBC.match(library) or library in there, f"{path} wants {library}")
                self.assertNotRegex(library, "grpc|protobuf|absl|libssl|libcares|libre2", path)
            versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", run("readelf", "--version-info", "--wide", path).stdout)
            for version in versions:
                self.assertLessEqual(tuple(map(int, version)), GLIBC, path)
            self.assertNotIn(".debug_info", run("readelf", "--sections", "--wide", path).stdout, path)

    def test_a_job_of_two_nodes_runs_where_nothing_is_installed(self):
        self.needs_root()
        done = self.in_root("cd /tmp && /rueda/bin/ruedarun -np 2 --virtual-nodes 2 /rueda/bin/rueda-bench allreduce "
                            "-b 4K -e 64K -f 4 && /rueda/bin/ruedactl --version")
        self.assertRegex(done.stdout, r"(?m)^\[0\] +65536 .* 0$")

    def test_gpu_tests_say_that_there_is_no_gpu(self):
        self.needs_root()
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("there is a driver")
        has_plugin = os.path.exists(os.path.join(self.bundle, "lib", "librueda_cuda.so"))
        why = "there is no GPU to be used" if has_plugin else "there is no GPU plugin"
        done = self.in_root("/rueda/bin/gpu_conformance_test --gtest_filter=\"*/cuda\"")
        self.assertIn(why, done.stdout)
        self.assertIn("[  SKIPPED ]", done.stdout)
        for script in ("tests/gpu/run.sh", "bench/gpu/run.sh"):
            done = self.in_root(f"/rueda/{script} /tmp/results", check=False)
            self.assertEqual(done.returncode, 77, done.stdout)
            self.assertIn("skipped", done.stdout)
            self.assertIn(why, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
