"""The build backend of the wheel (pyproject.toml): scikit-build-core's, which compiles for minutes, and a line on the terminal that
says how far it is. pip keeps what a backend prints to itself, unless it is called with -v; so the line goes to the terminal
directly, where there is one, and ninja's own lines go to whoever called pip with -v."""

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time

from scikit_build_core import build as _backend
from scikit_build_core.build import (build_editable, build_sdist, get_requires_for_build_editable,  # noqa: F401
                                     get_requires_for_build_sdist, get_requires_for_build_wheel,
                                     prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel)

BUILD_DIR = os.path.join("build", "wheel")  # as in pyproject.toml
TARGETS = ("ruedad", "ruedarun", "ruedactl", "rueda")
PERIOD_S = 2


def _steps_left():
    """What ninja would do now, in steps; None while there is nothing to ask it about."""
    ninja = shutil.which("ninja")
    if ninja is None or not os.path.exists(os.path.join(BUILD_DIR, "build.ninja")):
        return None
    done = subprocess.run([ninja, "-C", BUILD_DIR, "-n", *TARGETS], text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    steps = re.findall(r"^\[\d+/(\d+)\]", done.stdout, re.MULTILINE)
    return int(steps[-1]) if steps else None


def _steps_logged():
    """How many steps ninja has written down in all runs."""
    try:
        with open(os.path.join(BUILD_DIR, ".ninja_log"), encoding="utf-8", errors="replace") as log:
            return sum(1 for _ in log)
    except OSError:
        return 0


def describe(done, of, elapsed_s):
    """How far a build is, in one line, and what is left if it goes on as it has."""
    left_s = int(elapsed_s * (of - done) / done) if done else None
    left = "" if left_s is None else f", about {left_s // 60} min {left_s % 60} s left"
    return f"rueda: {done} of {of} steps done{left}"


def _watch(terminal, is_over):
    of = None
    while of is None:
        if is_over.wait(PERIOD_S):
            return
        of = _steps_left()
    before, began = _steps_logged(), time.monotonic()
    while not is_over.wait(PERIOD_S):
        done = min(of, _steps_logged() - before)
        terminal.write(f"\r{describe(done, of, time.monotonic() - began)}\x1b[K")
        terminal.flush()
    terminal.write("\r\x1b[K")
    terminal.flush()


@contextlib.contextmanager
def _progress():
    try:
        terminal = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115
    except OSError:  # nobody looks on
        yield
        return
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(terminal, is_over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        terminal.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with _progress():
        return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)
