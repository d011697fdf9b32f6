"""Measures PyTorch: an all-reduce of Gloo's, and DistributedDataParallel on it."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from ..processes import run_group
from .side import Side, parse_results

PYTHON = "/usr/bin/python3"  # Debian's, which has python3-torch; the python3 on PATH may be another one
WORKER = Path(__file__).resolve().parent.parent / "torch_worker.py"


def torch_missing():
    done = subprocess.run([PYTHON, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                          capture_output=True, check=False)
    return "python3-torch is not installed: deploy/packages.sh bench" if done.returncode else None


def run_workers(work, network, words):
    """Runs the workers and returns what rank 0 printed."""
    environments, commands = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(work.ranks):
            node = network.nodes[work.node_of(rank)]
            environments.append({
                "RANK": str(rank), "WORLD_SIZE": str(work.ranks), "GLOO_SOCKET_IFNAME": node.interface,
                "OMP_NUM_THREADS": "1"})
            commands.append(node.command([
                PYTHON, WORKER, "--store", f"{folder}/store", "--iters", work.iters, "--warmup", work.warmup,
                *words]))
        return run_group(commands, work.timeout_s, environments)[0]


class Gloo(Side):
    """An all-reduce of Gloo's. A model's tensors are one flat buffer from the start, so no copy counts against it."""

    name = "Gloo"

    def missing(self, work, network):
        return torch_missing()

    def measure(self, work, network):
        text = run_workers(work, network, ["--sizes", ",".join(map(str, work.sizes))])
        return parse_results(text, work.sizes, self.name)


class Ddp(Side):
    """A step of a model whose gradients are there at once, so that only DDP's own work is measured."""

    name = "DDP"

    def missing(self, work, network):
        return torch_missing() if work.model else "DDP measures a step: give --model"

    def measure(self, work, network):
        descriptor, path = tempfile.mkstemp(suffix=".json")
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(work.shapes, file)
            text = run_workers(work, network, ["--shapes", path])
        finally:
            os.unlink(path)
        return parse_results(text, work.sizes, self.name)
