"""Runs one cell: a job of rueda-bench over daemons of its own, each node in a network namespace with a link of its own."""

import json
import statistics
import tempfile
from pathlib import Path

from comparing.machine import NoiseMeter
from comparing.network import open_network, run
from comparing.processes import CompareError, run_group
from comparing.programs import ask_bench, find_program
from comparing.sides.side import parse_results

RENDEZVOUS_PORT = 29400  # is free, because the namespaces are the bench's own


def read_networks(bin_dir, names):
    """Returns {name: what `rueda-bench models` says of the network}: its bytes, and how long a P100 computes."""
    return {name: ask_bench(bin_dir, "models", "--model", name)[0] for name in names}


def compute_ms_of(network, batch):
    """Returns how long a P100 computes a step of so many images, or 0 where there is no batch."""
    return network["p100"]["fixed_ms"] + network["p100"]["per_image_ms"] * batch if batch else 0.0


def sent_bytes(node):
    """Returns what the node has sent so far, with all headers."""
    # /sys still shows the system's own interfaces in another network namespace; /proc/net does not.
    for line in run(node.command(["cat", "/proc/net/dev"])).splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == node.interface:
            return int(numbers.split()[8])
    raise CompareError(f"{node.netns_file} has no interface {node.interface}")


def commands(cell, network, options, compute_ms, path):
    work = (["allreduce", "--inplace", "--sizes", str(cell.size_bytes)] if cell.size_bytes else
            ["step", "--model", cell.model, "--op", "sum", "--compute-ms", f"{compute_ms:.3f}"])
    bench = [find_program(options.bin_dir, "rueda-bench"), *work, "--iters", options.steps * cell.times,
             "--warmup", options.warmup * cell.times, "--json", path]
    # No cell may have another congestion control than the rest.
    launcher = [find_program(options.bin_dir, "ruedarun"), "--preset", cell.preset, *cell.flags,
                "--daemon-arg=--tcp-congestion=system", "-np", cell.ranks_per_node]
    if cell.nodes == 1:
        return [network.nodes[0].command([*launcher, *bench])]
    endpoint = f"{network.nodes[0].address}:{RENDEZVOUS_PORT}"
    return [node.command([*launcher, "--nnodes", cell.nodes, "--node-rank", index, "--rdzv-endpoint", endpoint, *bench])
            for index, node in enumerate(network.nodes)]


def measure(cell, networks, options):
    """Returns what a cell took: step_ms, the median of the slowest rank's; cpu_s a step, of all ranks and daemons; sent_bytes a
    step, of all nodes together; noise_cores; and, of training, compute_ms, images_per_s, and its efficiency, which is 1 where a
    step takes as long as one GPU alone computes."""
    compute_ms = compute_ms_of(networks[cell.model], cell.batch) if cell.batch else 0.0
    with open_network(cell.nodes, is_joined=True, rate=cell.rate or None) as network, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        before = [sent_bytes(node) for node in network.nodes]
        meter = NoiseMeter()
        run_group(commands(cell, network, options, compute_ms, path), options.timeout_s)
        noise = meter.cores()
        sent = sum(sent_bytes(node) for node in network.nodes) - sum(before)
        size = cell.size_bytes or networks[cell.model]["bytes"]
        result, = parse_results(path.read_text(encoding="utf-8"), [size], cell.what())
    return {"bytes": size, "compute_ms": compute_ms, "noise_cores": noise,
            **summary(result, cell, compute_ms, sent, options)}


def summary(result, cell, compute_ms, sent, options):
    step_ms = result["time_us"] / 1e3
    # run_loop() has the warm-up twice, and a step on either side of those in the middle.
    found = {"step_ms": step_ms, "cpu_s": (result["cpu_s_per_GB"] or 0.0) * result["bytes"] / 1e9}
    if compute_ms or cell.size_bytes == 0:
        found["sent_bytes"] = sent / ((2 * options.warmup + options.steps) * cell.times)
    if compute_ms:
        found["images_per_s"] = cell.batch * cell.ranks / step_ms * 1e3
        found["efficiency"] = compute_ms / step_ms
    return found


class Store:
    """Keeps the results of cells in a file, a line each, so that a run that was ended goes on where it was."""

    def __init__(self, path):
        self.path = Path(path)
        self.results = {}  # (key, round): the line
        if self.path.exists():
            for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
                self._read(line, number)

    def _read(self, line, number):
        try:
            entry = json.loads(line)
            self.results[entry["key"], entry["round"]] = entry
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path}, line {number}, is no result of a cell ({error!r}); remove the line, and the cell is "
                             "measured again") from error

    def has(self, cell, number):
        return (cell.key(), number) in self.results

    def add(self, cell, number, result):
        entry = {"key": cell.key(), "round": number, "cell": cell.__dict__, **result}
        self.results[entry["key"], number] = entry
        # A run may be killed at any time, and then at most this line is not whole.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()

    def median(self, cell):
        """Returns the medians over the rounds of the cell, with "rounds", their number; or None if it was never measured."""
        found = [entry for (key, _), entry in self.results.items() if key == cell.key()]
        if not found:
            return None
        numbers = {name for entry in found for name, value in entry.items() if isinstance(value, (int, float)) and name != "round"}
        return {"rounds": len(found), **{name: statistics.median(entry[name] for entry in found if name in entry)
                                         for name in numbers}}
