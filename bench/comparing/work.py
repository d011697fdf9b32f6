"""Describes the work that every side does alike."""

import argparse
import re
from dataclasses import dataclass, field


@dataclass
class Work:
    """An all-reduce of float32, sum, in place, at each of these sizes; or a step of a model."""

    ranks: int
    nodes: int
    sizes: list
    model: str = ""
    shapes: list = field(default_factory=list)  # the shapes of the model's tensors
    iters: int = 0  # 0: rueda-bench chooses by the size
    warmup: int = 5
    timeout_s: int = 600
    hogs: int = 0  # the number of other processes that want a CPU each

    def ranks_by_node(self):
        """Returns the ranks of each node; the first nodes get one more, as ruedarun deals them out."""
        return [self.ranks // self.nodes + (node < self.ranks % self.nodes) for node in range(self.nodes)]

    def node_of(self, rank):
        for node, count in enumerate(self.ranks_by_node()):
            if rank < count:
                return node
            rank -= count
        raise IndexError(rank)


def parse_size(text):
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isascii() or not digits.isdigit() or (int(digits) << shift) % 4:
        raise argparse.ArgumentTypeError(f"'{text}' is no size of float32s: write 4096, 4K, 64M or 1G")
    return int(digits) << shift


def parse_sizes(text):
    """Returns a list of sizes; each part of the text is a size, or a range that goes up by factor 4."""
    sizes = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash or not first:
            sizes.append(parse_size(part))
            continue
        size, end = parse_size(first), parse_size(last)
        if not 0 < size <= end:
            raise argparse.ArgumentTypeError(f"'{part}' is no range of sizes: write 4K-64M")
        while size <= end:
            sizes.append(size)
            size *= 4
    return sizes


def format_size(size):
    for shift, suffix in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {suffix}"
    return f"{size} B"


def parse_rate(text):
    if not re.fullmatch(r"[1-9][0-9]*(mbit|gbit)", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no rate: write 1gbit, 10gbit or 100mbit")
    return text


def rate_bytes_per_s(rate):
    return int(rate[:-4]) * {"mbit": 10**6, "gbit": 10**9}[rate[-4:]] // 8
