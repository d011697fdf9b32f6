"""Measures Horovod on Gloo, where bench/install_horovod.sh has put it."""

import json
import subprocess
import tempfile
from pathlib import Path

from ..processes import run_group
from .side import Side, parse_results

INSTALL = Path(__file__).resolve().parents[2] / "install_horovod.sh"
WORKER = Path(__file__).resolve().parent.parent / "horovod_worker.py"


def horovod_python():
    """Returns the Python that has Horovod, or None."""
    python = subprocess.run([INSTALL, "--python"], text=True, capture_output=True, check=True).stdout.strip()
    try:
        done = subprocess.run([python, "-c", "import horovod.torch as hvd; assert hvd.gloo_built()"], capture_output=True,
                              check=False)
    except OSError:
        return None
    return None if done.returncode else python


class Horovod(Side):
    """An all-reduce of Horovod's; of a model each tensor is submitted on its own. `cycle_ms` is for how long Horovod collects what is
    ready before it reduces; None is Horovod's own choice."""

    def __init__(self, cycle_ms=None):
        self.name = f"Horovod {cycle_ms} ms" if cycle_ms else "Horovod"
        self.cycle_ms = cycle_ms
        self.python = None

    def missing(self, work, network):
        self.python = self.python or horovod_python()
        return None if self.python else "Horovod is not installed: bench/install_horovod.sh"

    def measure(self, work, network):
        with tempfile.TemporaryDirectory() as folder:
            if work.model:
                (Path(folder) / "shapes").write_text(json.dumps(work.shapes))
            text = run_group(self.commands(work, network, folder), work.timeout_s,
                             [{"OMP_NUM_THREADS": "1"}] * work.ranks)[0]
        return parse_results(text, work.sizes, self.name)

    def commands(self, work, network, folder):
        words = ["--shapes", f"{folder}/shapes"] if work.model else ["--sizes", ",".join(map(str, work.sizes))]
        if self.cycle_ms:
            words += ["--cycle-ms", self.cycle_ms]
        commands = []
        for rank in range(work.ranks):
            node = network.nodes[work.node_of(rank)]
            commands.append(node.command([
                self.python, WORKER, "--store", f"{folder}/store", "--rank", rank,
                "--nodes", ",".join(map(str, work.ranks_by_node())), "--address", network.nodes[0].address,
                "--interface", node.interface, "--iters", work.iters, "--warmup", work.warmup, *words]))
        return commands
