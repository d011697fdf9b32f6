#!/usr/bin/python3
"""One rank of a Gloo all-reduce, for bench/compare.py: float32, sum, in place, as PyTorch does it.

RANK and WORLD_SIZE say which rank. Rank 0 prints one JSON object a size, with the same keys as
rueda-bench.
"""

import argparse
import json
import os
import resource
import time

import torch
import torch.distributed as dist


def own_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(values, percent):
    """Nearest rank, as rueda-bench."""
    ordered = sorted(values)
    place = -(-percent * len(ordered) // 100)
    return ordered[max(int(place), 1) - 1]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def checked_all_reduce(buffer, rank, ranks):
    """Every rank contributes 2^rank. Returns the number of wrong elements."""
    buffer.fill_(2.0**rank)
    dist.all_reduce(buffer)
    return int((buffer != 2.0**ranks - 1).sum())


def measure(size, rank, ranks, iters, warmup):
    buffer = torch.empty(size // 4, dtype=torch.float32)
    wrong = checked_all_reduce(buffer, rank, ranks)
    for _ in range(warmup):
        dist.all_reduce(buffer)
    # The loop reduces its own results: zeros neither overflow nor become subnormal.
    buffer.zero_()
    dist.barrier()
    times = []
    cpu = own_cpu_s()
    start = time.monotonic()
    for _ in range(iters):
        dist.all_reduce(buffer)
        end = time.monotonic()
        times.append(end - start)
        start = end
    cpu = own_cpu_s() - cpu
    wrong += checked_all_reduce(buffer, rank, ranks)

    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    sums = torch.tensor([cpu, float(wrong)], dtype=torch.float64)
    dist.all_reduce(sums)
    slowest_us = [seconds * 1e6 for seconds in slowest.tolist()]
    time_us = median(slowest_us)
    return {
        "collective": "allreduce",
        "bytes": size,
        "dtype": "float32",
        "op": "sum",
        "nranks": ranks,
        "time_us": time_us,
        "time_us_p99": percentile(slowest_us, 99),
        "algbw_GBps": size / time_us / 1e3,
        "busbw_GBps": size / time_us / 1e3 * 2 * (ranks - 1) / ranks,
        "cpu_s_per_GB": sums[0].item() / iters / (size / 1e9) if size else None,
        "wrong": int(sums[1].item()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file in which the ranks find each other")
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--iters", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + options.store, rank=rank, world_size=ranks)
    for size in options.sizes.split(","):
        result = measure(int(size), rank, ranks, options.iters, options.warmup)
        if rank == 0:
            print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
