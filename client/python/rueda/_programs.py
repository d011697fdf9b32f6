"""Makes the programs of a wheel commands: pip puts ruedad, ruedarun and ruedactl on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def _run(name: str) -> NoReturn:
    """Replaces this process by the program that the package holds."""
    program = Path(__file__).resolve().parent / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: this installation has no {program}; build the wheel from the repository's root, or use the "
                 "one that is installed elsewhere")
    os.execv(program, [str(program), *sys.argv[1:]])


def ruedad() -> NoReturn:
    """Runs the daemon."""
    _run("ruedad")


def ruedarun() -> NoReturn:
    """Runs the launcher."""
    _run("ruedarun")


def ruedactl() -> NoReturn:
    """Runs the operator's tool."""
    _run("ruedactl")
