"""Lists what bench/characterise.py measures: cells, each of them one job, in studies, each of them one or two figures."""

import hashlib
import json
from dataclasses import asdict, dataclass

NODES = (2, 4, 8)
RATE = "10gbit"
BATCH = 64  # of each rank, as Awan et al. and the source of the compute times have it


@dataclass(frozen=True)
class Cell:
    """One job. `flags` are of ruedarun, beside the preset. A cell with a `batch` trains: its ranks sleep as long as a P100 computes
    a step of that many images. One without hands over all gradients at once, again and again. One with `size_bytes` has no model,
    and all-reduces one buffer of so many bytes."""

    study: str
    preset: str = "rueda"
    flags: tuple = ()
    model: str = ""
    batch: int = 0
    size_bytes: int = 0
    nodes: int = 2
    ranks_per_node: int = 1
    rate: str = ""  # of each node's link, both ways; "": not shaped

    @property
    def ranks(self):
        return self.nodes * self.ranks_per_node

    @property
    def times(self):
        """Returns how often as many steps as of a training step are measured: steps that neither sleep nor wait for a shaped link are
        short, and a lock needs some of them before it holds."""
        return 1 if self.batch or self.rate else 4

    def key(self):
        """Returns what tells this cell from all others, in every run."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def what(self):
        work = f"{self.size_bytes} bytes" if self.size_bytes else self.model + (f" at {self.batch}" if self.batch else "")
        return (f"{self.study}: {' '.join((self.preset, *self.flags))}, {work}, {self.nodes} x {self.ranks_per_node}, "
                f"{self.rate or 'unshaped'}")


def uber():
    return [Cell("uber", preset, (), model, BATCH, nodes=nodes, rate=RATE)
            for model in ("inception3", "resnet101") for preset in ("grpc-ps", "horovod", "rueda") for nodes in NODES]


def links():
    return [Cell("links", "rueda", (), model, BATCH, nodes=4, rate=rate)
            for model in ("inception3", "resnet101", "vgg16", "alexnet") for rate in ("", "10gbit", "1gbit")
            if rate != "1gbit" or model not in ("vgg16", "alexnet")]  # a step of these would take 3 to 7 s


def approaches():
    return [Cell("approaches", preset, (), "resnet50", BATCH, nodes=nodes, rate=RATE)
            for preset in ("grpc-ps", "grpc-mpi", "baidu", "horovod", "mpi-opt", "rueda") for nodes in NODES]


def networks():
    return [Cell("networks", preset, (), model, BATCH if model != "nasnet-large" else 16, nodes=4, rate=RATE)
            for model in ("mobilenet1", "resnet50", "nasnet-large") for preset in ("grpc-ps", "grpc-mpi", "baidu", "horovod")]


def batches():
    return [Cell("batches", "horovod", (), "resnet50", batch, nodes=4, rate=RATE) for batch in (8, 16, 32, 64, 128)]


def latency():
    return [Cell("latency", preset, (), size_bytes=size, nodes=4) for preset in ("baidu", "mpi-opt", "rueda")
            for size in (8, 4 << 10, 128 << 10, 4 << 20, 64 << 20)]


def ring_and_central():
    return [Cell("ring-and-central", "rueda", ("--algorithm", algorithm), size_bytes=8 << 20, nodes=nodes, rate="1gbit")
            for algorithm in ("ring", "central") for nodes in (2, 3, 4, 6, 8)]


def strong():
    return [Cell("strong", preset, (), "resnet50", 256 // nodes, nodes=nodes, rate=RATE)
            for preset in ("horovod", "rueda") for nodes in NODES]


def fusion():
    return [Cell("fusion", "cambridge-1step", ("--fusion-threshold", str(size)), "googlenet-no-aux", 32, nodes=4, rate="1gbit")
            for size in (0, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20)]


def reducers():
    return [Cell("reducers", preset, ("--algorithm", algorithm), "googlenet-no-aux", 32, nodes=nodes, ranks_per_node=2, rate="1gbit")
            for preset in ("cambridge-1step", "cambridge-2step") for algorithm in ("ring", "central") for nodes in (2, 4)]


def modes():
    return [Cell("modes", "rueda", ("--coordination", mode), model, nodes=4)
            for model in ("small1000", "resnet50") for mode in ("locked", "cached", "global-sleep", "nonblocking", "negotiate")]


def calibration():
    """Returns what the costs of the predictor are fitted on: all-reduces of two sizes, and no training step."""
    return [Cell("calibration", "rueda", ("--algorithm", "ring"), size_bytes=size, nodes=nodes, ranks_per_node=ranks)
            for nodes, ranks in ((2, 1), (4, 1), (2, 2)) for size in (4 << 10, 64 << 20)]


STUDIES = {"calibration": calibration, "uber": uber, "approaches": approaches, "networks": networks, "links": links,
           "batches": batches, "strong": strong, "ring-and-central": ring_and_central, "modes": modes, "latency": latency,
           "fusion": fusion, "reducers": reducers}


def cells_of(names):
    """Returns all cells of these studies, in their order."""
    return [cell for name in names for cell in STUDIES[name]()]
