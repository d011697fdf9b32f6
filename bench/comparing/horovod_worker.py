#!/usr/bin/python3
"""Runs one rank of Horovod on Gloo, for bench/compare.py: an all-reduce (float32, sum, in place) at each size, or a step in which
each tensor of given shapes is submitted on its own, as Horovod's optimizer does, so that its cycles and its fusion have work.

The ranks find each other through a server of rank 0's, as horovodrun's would. Rank 0 prints one JSON object a size, with the
same keys as rueda-bench."""

import argparse
import json
import os
import threading
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer
from measuring import measure

PATIENCE_S = 60
LOOK_S = 1e-4  # a tenth of a cycle


class Peers:
    """All ranks, as measure() needs them."""

    def __init__(self):
        self.ranks = hvd.size()

    def barrier(self):
        hvd.barrier()

    def largest(self, values):
        return hvd.allgather(torch.tensor([values], dtype=torch.float64)).amax(0).tolist()

    def sums(self, values):
        return hvd.allgather(torch.tensor([values], dtype=torch.float64)).sum(0).tolist()


def wait_for(handle):
    """Waits until an operation has ended. Horovod's own wait spins, and yields; where ranks outnumber the CPUs it keeps Horovod's
    own threads from working, and 64 MiB take several times as long, so ranks sleep between two looks there."""
    if hvd.size() > os.cpu_count():
        while not hvd.poll(handle):
            time.sleep(LOOK_S)
    hvd.synchronize(handle)


class Tensors:
    """Tensors of one operation or step, to which every rank contributes 2^rank, so that a sum tells which ranks were in it."""

    def __init__(self, shapes):
        self.tensors = [torch.empty(shape, dtype=torch.float32) for shape in shapes]
        self.mine, self.sum = 2.0**hvd.rank(), 2.0**hvd.size() - 1

    def prepare(self):
        # The loop reduces its own results, and zeros neither overflow nor become subnormal.
        for tensor in self.tensors:
            tensor.zero_()

    def operate(self):
        raise NotImplementedError

    def checked(self):
        """Returns the number of wrong elements."""
        for tensor in self.tensors:
            tensor.fill_(self.mine)
        self.operate()
        return sum(int((tensor != self.sum).sum()) for tensor in self.tensors)


class AllReduce(Tensors):
    def __init__(self, size):
        super().__init__([[size // 4]])
        self.name = f"bytes.{size}"

    def operate(self):
        wait_for(hvd.allreduce_async_(self.tensors[0], name=self.name, op=hvd.Sum))


class Step(Tensors):
    def __init__(self, shapes):
        super().__init__(shapes)
        # Names that stay the same let Horovod answer from its cache after the first step.
        self.names = [f"gradient.{index}" for index in range(len(shapes))]

    def operate(self):
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in zip(self.tensors, self.names)]
        for handle in handles:
            wait_for(handle)


def find_others(options, slots):
    """Returns the port of the server through which the ranks find each other; rank 0 starts it."""
    path = Path(options.store)
    if options.rank == 0:
        server = RendezvousHTTPServer((options.address, 0), RendezvousHandler, 0)
        server.init(slots)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        written = path.with_suffix(".new")
        written.write_text(str(server.server_address[1]))
        written.rename(path)
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > end:
            raise SystemExit(f"rank 0 has not started its server within {PATIENCE_S} s")
        time.sleep(0.01)
    return path.read_text()


def environment_of(options):
    """Returns what horovodrun would tell this rank."""
    slots = get_host_assignments(
        parse_hosts(",".join(f"node{node}:{count}" for node, count in enumerate(options.nodes.split(",")))),
        sum(map(int, options.nodes.split(","))))
    slot = slots[options.rank]
    given = {
        "HOROVOD_HOSTNAME": slot.hostname, "HOROVOD_RANK": slot.rank, "HOROVOD_SIZE": slot.size,
        "HOROVOD_LOCAL_RANK": slot.local_rank, "HOROVOD_LOCAL_SIZE": slot.local_size,
        "HOROVOD_CROSS_RANK": slot.cross_rank, "HOROVOD_CROSS_SIZE": slot.cross_size,
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": options.interface,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": options.address, "HOROVOD_GLOO_RENDEZVOUS_PORT": find_others(options, slots)}
    if options.cycle_ms:
        given["HOROVOD_CYCLE_TIME"] = options.cycle_ms
    return {name: str(value) for name, value in given.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file in which rank 0 says where its server is")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--nodes", required=True, help="the number of ranks of each node, as 2,2")
    parser.add_argument("--address", required=True, help="of rank 0's node")
    parser.add_argument("--interface", required=True, help="of this rank's node")
    parser.add_argument("--cycle-ms", help="HOROVOD_CYCLE_TIME (Horovod's default)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--sizes", help="bytes, separated by commas")
    what.add_argument("--shapes", help="JSON file with the shapes of a model's tensors")
    parser.add_argument("--iters", type=int, required=True, help="0: by size")
    parser.add_argument("--warmup", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # What the user's environment sets would make another Horovod than the one that the report names.
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        del os.environ[name]
    os.environ.update(environment_of(options))
    hvd.init()
    peers = Peers()

    def report(work, size):
        result = measure(work, peers, size, options.iters, options.warmup)
        if hvd.rank() == 0:
            print(json.dumps(result), flush=True)

    if options.shapes:
        shapes = json.loads(Path(options.shapes).read_text())
        report(Step(shapes), sum(4 * torch.Size(shape).numel() for shape in shapes))
    else:
        for size in map(int, options.sizes.split(",")):
            report(AllReduce(size), size)
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
