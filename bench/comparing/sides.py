"""Who is compared. A new peer is a new Side."""

import json
import os
import tempfile
from pathlib import Path

from .processes import CompareError, run_group

HERE = Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # Debian's, which has python3-torch; the one on PATH may be another


class Side:
    """Something that can do the work: measure() returns one dict a size, with rueda-bench's keys."""

    name = ""

    def measure(self, work):
        raise NotImplementedError


class Rueda(Side):
    """In one mode of coordination, or, without one, in the daemon's own."""

    def __init__(self, bin_dir, coordination=None):
        self.name = f"Rueda {coordination}" if coordination else "Rueda"
        self.launcher = find_program(bin_dir, "ruedarun")
        self.bench = find_program(bin_dir, "rueda-bench")
        self.flags = ["--coordination", coordination] if coordination else []

    def measure(self, work):
        what = (["step", "--model", work.model, "--op", "sum"] if work.model else
                ["allreduce", "--inplace", "--sizes", ",".join(map(str, work.sizes))])
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            # The daemons must not choose a congestion control that the peer does not have.
            run_group([[
                self.launcher, "-np", str(work.np), "--virtual-nodes", str(work.nodes), *self.flags,
                "--daemon-arg=--tcp-congestion=system", self.bench, *what, "--iters", str(work.iters),
                "--warmup", str(work.warmup), "--json", str(results)]], work.timeout_s)
            return parse_results(results.read_text(), work.sizes, self.name)


class Gloo(Side):
    """A model's tensors are one flat buffer for it from the start: no copy counts against it."""

    name = "Gloo"

    def measure(self, work):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                PYTHON, str(HERE / "gloo_worker.py"), "--store", f"{folder}/store",
                "--sizes", ",".join(map(str, work.sizes)), "--iters", str(work.iters),
                "--warmup", str(work.warmup)]
            environments = [
                {"RANK": str(rank), "WORLD_SIZE": str(work.np), "GLOO_SOCKET_IFNAME": "lo",
                 "OMP_NUM_THREADS": "1"}
                for rank in range(work.np)]
            texts = run_group([command] * work.np, work.timeout_s, environments)
            return parse_results(texts[0], work.sizes, self.name)


def find_program(bin_dir, name):
    path = Path(bin_dir) / name
    if not os.access(path, os.X_OK):
        raise CompareError(f"{path} is not there: build first (cmake --preset release, cmake --build "
                           "--preset release), or name the folder with --bin-dir")
    return str(path.resolve())


def parse_results(text, sizes, name):
    results = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if [result["bytes"] for result in results] != sizes:
        raise CompareError(f"{name} reported {[r['bytes'] for r in results]} bytes, not {sizes}")
    for result in results:
        if result["wrong"] != 0:
            raise CompareError(f"{name}: {result['wrong']} wrong elements at {result['bytes']} bytes")
    return results


def measure_limits(bin_dir):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "limits.jsonl"
        run_group([[find_program(bin_dir, "rueda-bench"), "limits", "--json", str(path)]], 120)
        return json.loads(path.read_text())
