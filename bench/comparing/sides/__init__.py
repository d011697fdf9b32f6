"""Lists the sides that are compared, with one file a peer. A new peer is a new Side, and a line here."""

import itertools

from .floor import Floor
from .gloo import Ddp, Gloo
from .horovod import Horovod
from .open_mpi import OpenMpi
from .rueda import Rueda

PEERS = {
    "gloo": lambda bin_dir: Gloo(),
    "ddp": lambda bin_dir: Ddp(),
    "horovod": lambda bin_dir: Horovod(),
    "horovod-0.1ms": lambda bin_dir: Horovod("0.1"),
    "mpi-shm": lambda bin_dir: OpenMpi(bin_dir, "library", "shm"),
    "mpi-tcp": lambda bin_dir: OpenMpi(bin_dir, "library", "tcp"),
    "ring-shm": lambda bin_dir: OpenMpi(bin_dir, "ring", "shm"),
    "ring-tcp": lambda bin_dir: OpenMpi(bin_dir, "ring", "tcp"),
}
NAMES = ("rueda", *PEERS, "floor")
DEFAULT_OF_SIZES = tuple(name for name in NAMES if name not in ("ddp", "horovod-0.1ms"))
DEFAULT_OF_MODELS = ("rueda", "gloo", "ddp", "horovod", "floor")


def make_sides(names, bin_dir, ours=None, before=None):
    """Returns the sides in the order of NAMES. Rueda is there once for each combination of what `ours` lists under the names of
    its parameters, and the same of another build, in the folder `before`."""
    ours = ours or {}
    sides = []
    for name in NAMES:
        if name not in names:
            continue
        if name == "rueda":
            builds = [(bin_dir, None)] + ([(before, "before")] if before else [])
            sides += [Rueda(folder, **dict(zip(ours, values)), label=label) for folder, label in builds
                      for values in itertools.product(*ours.values())]
        elif name == "floor":
            sides.append(Floor(bin_dir))
        else:
            sides.append(PEERS[name](bin_dir))
    return sides
