#!/usr/bin/python3
"""Tests that librueda, which lives inside other people's processes, needs nothing but libc and libstdc++, and shows no symbol but
its own. It loads nothing but a GPU's driver, and starts no thread but for streams that wait
(docs/decisions/0052-tensors-in-device-memory.md) and for callbacks (docs/decisions/0091-told-of-an-end.md). Usage: link_test.py LIBRUEDA"""

import re
import subprocess
import sys
from pathlib import Path

ALLOWED = re.compile(r"^(libstdc\+\+|libgcc_s|libm|libc|ld-linux[-\w]*)\.so\.\d+$")
# These calls are allowed in these files alone. allocator_hook.cc asks for libraries that are loaded, and loads none.
SOURCES = Path(__file__).resolve().parents[2] / "client" / "src"
ONLY_IN = {r"\bdlopen\(": ("device/cuda_driver.cc", "device/allocator_hook.cc"),
           r"\bstd::j?thread\(": ("session/callbacks.cc", "session/device_session.cc"), r"\bstd::async\b|\bpthread_create\b": ()}
# Every C++ library has these, whether it wants them or not: inline tables of standard types.
STANDARD = re.compile(r"^_Z(TV|TI|TS|N)?(N?St|NKSt|St)")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    library = sys.argv[1]
    errors = []
    dynamic = output("readelf", "-d", library)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    if not needed:
        errors.append("readelf shows no needed library at all: wrong file?")
    errors += [f"needs {name}" for name in needed if not ALLOWED.match(name)]
    if "[librueda.so.0]" not in dynamic:
        errors.append("its SONAME is not librueda.so.0")
    # ldd also lists what the needed libraries need in turn.
    for line in output("ldd", library).splitlines():
        name = line.split()[0].rsplit("/", 1)[-1]
        if not ALLOWED.match(name) and not name.startswith("linux-vdso"):
            errors.append(f"loads {name}")
    symbols = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    errors += [f"exports {s}" for s in symbols if not s.startswith("rueda_") and not STANDARD.match(s)]
    if "rueda_init" not in symbols:
        errors.append("does not export rueda_init")
    imported = output("nm", "-D", "--undefined-only", library)
    if " pthread_create@" in imported:
        errors.append("calls pthread_create")
    errors += [f"{where} is not there: who does it now?" for places in ONLY_IN.values() for where in places
               if not (SOURCES / where).is_file()]
    for path in sorted(SOURCES.rglob("*.*")):
        name = str(path.relative_to(SOURCES))
        text = path.read_text(encoding="utf-8")
        errors += [f"{name} has {what}" for what, places in ONLY_IN.items() if name not in places and re.search(what, text)]
    for error in errors:
        print(f"{library}: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
