"""Measures Open MPI: its own all-reduce, or our ring over its point-to-point messages (bench/mpi)."""

import os
import shutil
import tempfile
from pathlib import Path

from ..processes import run_group
from ..programs import BUILD
from .side import Side, parse_results

NAMES = {"library": "Open MPI", "ring": "MPI ring"}
TRANSPORTS = {"shm": "self,vader", "tcp": "self,tcp"}
# Open MPI runs this program to get a shell on another node.
AGENT = Path(__file__).resolve().parent.parent / "netns_agent.sh"


class OpenMpi(Side):
    def __init__(self, bin_dir, algorithm, transport):
        self.name = f"{NAMES[algorithm]} {transport}"
        self.algorithm, self.transport = algorithm, transport
        self.program = Path(bin_dir) / "rueda-mpi-bench"

    def missing(self, work, network):
        if not shutil.which("mpirun"):
            return f"Open MPI is not installed: deploy/packages.sh bench; then build again ({BUILD})"
        if not os.access(self.program, os.X_OK):
            return f"{self.program} is not there, as it was built without Open MPI: build again ({BUILD})"
        if network.is_joined and self.transport == "shm":
            return "shared memory does not cross the network between the nodes"
        return None

    def measure(self, work, network):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                           "RUEDA_PLACES": network.places(), "TMPDIR": folder}
            (text,) = run_group([network.nodes[0].command(self.command(work, network))], work.timeout_s, [environment])
        return parse_results(text, work.sizes, self.name)

    def command(self, work, network):
        interface = network.nodes[0].interface
        # With more ranks than CPUs Open MPI yields while it waits.
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", work.ranks,
                    "--mca", "btl", TRANSPORTS[self.transport]]
        if self.transport == "tcp":
            launcher += ["--mca", "btl_tcp_if_include", interface]
        if network.is_joined:
            hosts = zip(network.nodes, work.ranks_by_node())
            launcher += ["--host", ",".join(f"{node.address}:{count}" for node, count in hosts),
                         "--mca", "plm_rsh_agent", str(AGENT), "--mca", "oob_tcp_if_include", interface,
                         # A daemon of mpirun's that is left behind would count as other work.
                         "--leave-session-attached"]
        return [*launcher, self.program, "--algorithm", self.algorithm,
                "--sizes", ",".join(map(str, work.sizes)), "--iters", work.iters, "--warmup", work.warmup]
