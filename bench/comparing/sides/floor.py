"""Measures the least that the machine allows, by rueda-bench floor, among the other sides."""

from ..programs import ask_bench, find_program
from .side import Side

# For smaller buffers the way in which ranks wait decides, and the bare program's threads wait as badly as any.
SMALLEST_BYTES = 256 << 10


class Floor(Side):
    name = "floor"
    kind = "floor"

    def __init__(self, bin_dir):
        self.bin_dir = bin_dir

    def missing(self, work, network):
        find_program(self.bin_dir, "rueda-bench")
        if max(work.sizes) < SMALLEST_BYTES:
            return f"a floor is no measure below {SMALLEST_BYTES} bytes"
        return None

    def measure(self, work, network):
        sizes = [size for size in work.sizes if size >= SMALLEST_BYTES]
        words = ["--np", str(work.ranks), "--nodes", str(work.nodes), "--sizes", ",".join(map(str, sizes)),
                 "--iters", str(work.iters)]
        if network.is_joined:
            words += ["--places", network.places()]
        lines = ask_bench(self.bin_dir, "floor", *words, node=network.nodes[0], timeout_s=work.timeout_s)
        found = {line["bytes"]: line for line in lines}
        return [found.get(size, {"bytes": size}) for size in work.sizes]
