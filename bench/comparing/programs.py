"""Finds programs of the build, and asks rueda-bench about the machine and the models."""

import json
import os
import re
import subprocess
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


def measure_limits(bin_dir, network, encrypts=False):
    words = ["--places", ",".join(node.place() for node in network.nodes[:2])] if network.is_joined else []
    limits = ask_bench(bin_dir, "limits", *words, node=network.nodes[0])[0]
    if encrypts:
        limits["aes_128_gcm_GBps"] = measure_aes_gcm()
    return limits


def measure_aes_gcm(piece_bytes=256 << 10):
    """Returns how many GB/s one core encrypts by AES-128-GCM, in pieces of a chunk."""
    command = ["openssl", "speed", "-mr", "-evp", "aes-128-gcm", "-bytes", str(piece_bytes), "-seconds", "1"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompareError(f"the limit of AES-GCM cannot be measured: {error}; install openssl") from error
    found = re.findall(r"^\+F:.*:([0-9.]+)$", said, re.MULTILINE)
    if not found:
        raise CompareError(f"openssl speed says nothing of a rate: {said[-200:]!r}")
    return float(found[-1]) / 1e9


def read_model(bin_dir, name):
    """Returns a model's bytes in float32 and the shapes of its tensors."""
    return ask_bench(bin_dir, "models", "--model", name)[0]
