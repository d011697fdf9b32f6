#!/usr/bin/python3
"""Tests that one librueda_tensorflow.so serves all versions of TensorFlow: abi_test.py LIBRARY [PYTHON...].

What it needs of TensorFlow is among the names that all wheels from 2.15.1 to 2.21.0 have (exported_names.txt), it needs nothing else but
librueda, libc and libstdc++, and it shows nothing but two functions. For each PYTHON that has TensorFlow the names are looked for in its
library, and the declarations in tf_abi.h are compiled beside its headers."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ALLOWED = re.compile(r"^(librueda|libtensorflow_framework|libstdc\+\+|libgcc_s|libm|libc|ld-linux[-\w]*)\.so(\.\d+)?$")
FIND = "import importlib.util as u, os; print(os.path.dirname(u.find_spec('tensorflow').origin))"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(library, kind):
    return {line.split()[-1].partition("@")[0] for line in output("nm", "-D", f"--{kind}-only", library).splitlines()}


def listed():
    """Returns the names that all versions have."""
    with open(os.path.join(HERE, "exported_names.txt"), encoding="utf-8") as file:
        return set(file.read().split())


def look_at_library(library):
    """Yields what is wrong with the library itself."""
    dynamic = output("readelf", "-d", library)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    yield from (f"{library} needs {one}" for one in needed if not ALLOWED.match(one))
    yield from (f"{library} does not name {one}" for one in ("librueda.so.0", "libtensorflow_framework.so.2") if one not in needed)
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        yield f"{library} has a path of its own, and could load another TensorFlow than Python's"
    everywhere = listed()
    wanted = {one for one in names(library, "undefined") if one.startswith(("TF_", "TSL_"))}
    if not wanted:
        yield f"{library} needs no name of TensorFlow's: wrong file?"
    yield from (f"{library} needs {one}, which not all versions have" for one in sorted(wanted - everywhere))
    shown = {one for one in names(library, "defined") if not one.startswith("_ZNSt") and not one.startswith("_ZSt")}
    if shown != {"rueda_tensorflow_problem", "rueda_tensorflow_take_back"}:
        yield f"{library} shows {sorted(shown)}"


def look_at_wheel(library, python):
    """Yields what of the library is not in a wheel of TensorFlow, or is there in another form."""
    wheel = output(python, "-c", FIND).strip()
    there = names(os.path.join(wheel, "libtensorflow_framework.so.2"), "defined")
    wanted = {one for one in names(library, "undefined") if one.startswith(("TF_", "TSL_"))}
    yield from (f"{wheel} has no {one}" for one in sorted(wanted - there))
    yield from (f"{wheel} has no {one}, which exported_names.txt says all versions have" for one in sorted(listed() - there))
    include = os.path.join(wheel, "include")
    folders = [include, *(os.path.join(include, "external", one) for one in ("local_tsl", "local_xla"))]
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", *(word for one in folders for word in ("-isystem", one)),
               os.path.join(HERE, "same_abi.cc")]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode != 0:
        yield f"tf_abi.h differs from the headers in {include}: {compiled.stderr}"


def main():
    library, *pythons = sys.argv[1:]
    errors = [*look_at_library(library), *(error for python in pythons for error in look_at_wheel(library, python))]
    for error in errors:
        print(error, file=sys.stderr)
    print(f"{len(pythons)} wheels were looked at")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
