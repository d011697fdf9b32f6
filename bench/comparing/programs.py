"""Finds programs of the build, and asks rueda-bench about the machine and the models."""

import json
import os
import tempfile
from pathlib import Path

from .processes import CompareError, run_group

BUILD = "cmake --preset release, cmake --build --preset release"


def default_bin_dir():
    return Path(__file__).resolve().parents[2] / "build" / "release" / "bin"


def find_program(bin_dir, name):
    path = Path(bin_dir) / name
    if not os.access(path, os.X_OK):
        raise CompareError(f"{path} is not there: build first ({BUILD}), or name the folder with --bin-dir")
    return str(path.resolve())


def ask_bench(bin_dir, *words, node=None, timeout_s=300):
    """Returns the JSON lines of one command of rueda-bench that needs no job."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.json"
        command = [find_program(bin_dir, "rueda-bench"), *words, "--json", str(path)]
        run_group([node.command(command) if node else command], timeout_s)
        return [json.loads(line) for line in path.read_text().splitlines()]


def measure_limits(bin_dir, network):
    words = ["--places", ",".join(node.place() for node in network.nodes[:2])] if network.is_joined else []
    return ask_bench(bin_dir, "limits", *words, node=network.nodes[0])[0]


def read_model(bin_dir, name):
    """Returns a model's bytes in float32 and the shapes of its tensors."""
    return ask_bench(bin_dir, "models", "--model", name)[0]
