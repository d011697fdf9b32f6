#!/usr/bin/python3
"""Tests that librueda_mpi.so has every name that jaxlib looks up, and no other: mpi_names_test.py LIBRARY [PYTHON...].

jaxlib leaves the process if one is missing. The names are in mpi_names.txt; for each PYTHON that has JAX they are compared with those in
its jaxlib."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOWED = re.compile(r"^(librueda|libstdc\+\+|libgcc_s|libm|libc|ld-linux[-\w]*)\.so(\.\d+)?$")
NAME = re.compile(rb"\0((?:MPIX?ABI|mpiabi|mpiwrapper)_\w+)(?=\0)")
FIND = "import importlib.util as u, os; print(os.path.dirname(u.find_spec('jaxlib').origin))"
# MPItrampoline's own variables, in which it keeps the version that it has found.
OWN = {"mpiabi_loaded_version_major", "mpiabi_loaded_version_minor", "mpiabi_loaded_version_patch"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def listed():
    with open(os.path.join(HERE, "mpi_names.txt"), encoding="utf-8") as file:
        return set(file.read().split())


def look_at_library(library):
    """Yields what is wrong with the library."""
    shown = {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    shown = {name for name in shown if not name.startswith(("_ZNSt", "_ZSt", "_ZNKSt"))}
    yield from (f"{library} lacks {name}" for name in sorted(listed() - shown))
    yield from (f"{library} shows {name}, which jaxlib does not look up" for name in sorted(shown - listed()))
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", library))
    yield from (f"{library} needs {one}" for one in needed if not ALLOWED.match(one))


def look_at_wheel(python):
    """Yields the names in a jaxlib that are not in the list, and the other way round."""
    folder = output(python, "-c", FIND).strip()
    # The library was one file, and is another one since.
    paths = [path for path in (os.path.join(folder, one) for one in ("libjax_common.so", "xla_extension.so")) if os.path.exists(path)]
    found = set()
    for path in paths:
        with open(path, "rb") as file:
            found |= {name.decode() for name in NAME.findall(file.read())}
    found -= OWN
    yield from (f"{folder} looks up {name}, which is not in mpi_names.txt" for name in sorted(found - listed()))
    yield from (f"{folder} does not look up {name}" for name in sorted(listed() - found))


def main():
    library, *pythons = sys.argv[1:]
    errors = [*look_at_library(library), *(error for python in pythons for error in look_at_wheel(python))]
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{len(listed())} names; {len(pythons)} wheels were looked at")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
