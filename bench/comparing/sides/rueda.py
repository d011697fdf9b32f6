"""Measures Rueda: rueda-bench under ruedarun, with daemons of its own."""

import tempfile
from pathlib import Path

from ..processes import run_group
from ..programs import find_program
from .side import Side, parse_results

RENDEZVOUS_PORT = 29400  # is free, because the namespace is the comparison's own


class Rueda(Side):
    """Rueda in one mode of coordination, with so many TCP streams, this wire dtype, fusion threshold, and so on; what is not given is the daemon's
    choice. `label` names a build other than the first."""

    kind = "ours"

    def __init__(self, bin_dir, coordination=None, streams=None, wire=None, preset=None, algorithm=None, transport=None,
                 data_protection=None, fusion=None, label=None):
        self.name = " ".join(["Rueda", *filter(None, (preset, algorithm, transport, data_protection, coordination, streams and f"x{streams}", wire,
                                                      fusion and f"fusion {fusion}", label))])
        self.bin_dir = bin_dir
        self.flags = []
        for flag, value in (("--coordination", coordination), ("--preset", preset), ("--transport", transport),
                            ("--data-protection", data_protection), ("--fusion-threshold", fusion)):
            self.flags += [flag, value] if value else []
        if algorithm:  # central:2 is the central algorithm with two servers
            name, _, servers = algorithm.partition(":")
            self.flags += ["--algorithm", name, *(["--servers", servers] if servers else [])]
        if streams:
            self.flags.append(f"--daemon-arg=--streams={streams}")
        self.bench_flags = ["--wire", wire] if wire else []

    def missing(self, work, network):
        for name in ("ruedarun", "ruedad", "rueda-bench"):
            find_program(self.bin_dir, name)  # raises: without Rueda there is nothing to compare
        return None

    def measure(self, work, network):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            run_group(self.commands(work, network, path), work.timeout_s)
            results = parse_results(path.read_text(), work.sizes, self.name)
        if network.is_joined:  # rank 0 knows only one of several daemons
            for result in results:
                result.pop("order_messages_per_step", None)
        return results

    def commands(self, work, network, path):
        what = (["step", "--model", work.model, "--op", "sum"] if work.model else
                ["allreduce", "--inplace", "--sizes", ",".join(map(str, work.sizes))])
        bench = [find_program(self.bin_dir, "rueda-bench"), *what, *self.bench_flags, "--iters", work.iters,
                 "--warmup", work.warmup, "--json", path]
        # The daemons must not choose a congestion control that the peers do not have.
        launcher = [find_program(self.bin_dir, "ruedarun"), *self.flags, "--daemon-arg=--tcp-congestion=system"]
        if not network.is_joined:
            placed = [*launcher, "-np", work.ranks, "--virtual-nodes", work.nodes, *bench]
            return [network.nodes[0].command(placed)]
        endpoint = f"{network.nodes[0].address}:{RENDEZVOUS_PORT}"
        return [
            node.command([*launcher, "-np", count, "--nnodes", work.nodes, "--node-rank", index,
                          "--rdzv-endpoint", endpoint, *bench])
            for index, (node, count) in enumerate(zip(network.nodes, work.ranks_by_node()))]
