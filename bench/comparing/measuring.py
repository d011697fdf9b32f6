"""Measures one rank's share of a peer's work, for the workers in this folder."""

import resource
import time


def own_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(values, percent):
    """Returns the nearest-rank percentile, as rueda-bench does."""
    ordered = sorted(values)
    place = -(-percent * len(ordered) // 100)
    return ordered[max(int(place), 1) - 1]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def default_iterations(size):
    """Returns the number that bench/base/sizes.cc chooses."""
    if size <= 64 << 10:
        return 200
    return 50 if size <= 4 << 20 else 20


def measure(work, peers, size, iters, warmup):
    """Returns what one size or step took, as one dict with rueda-bench's keys. `work` has prepare(), operate(), and checked(), which
    returns the number of wrong elements; `peers` has ranks, barrier(), and largest() and sums() over the ranks of lists of numbers."""
    iters = iters or default_iterations(size)
    wrong = work.checked()
    for _ in range(warmup):
        work.operate()
    work.prepare()
    peers.barrier()
    times = []
    cpu = own_cpu_s()
    start = time.monotonic()
    for _ in range(iters):
        work.operate()
        end = time.monotonic()
        times.append(end - start)
        start = end
    cpu = own_cpu_s() - cpu
    wrong += work.checked()

    slowest_us = [seconds * 1e6 for seconds in peers.largest(times)]
    cpu, wrong = peers.sums([cpu, float(wrong)])
    time_us = median(slowest_us)
    return {
        "collective": "allreduce",
        "bytes": size,
        "dtype": "float32",
        "nranks": peers.ranks,
        "time_us": time_us,
        "time_us_p99": percentile(slowest_us, 99),
        "algbw_GBps": size / time_us / 1e3,
        "busbw_GBps": size / time_us / 1e3 * 2 * (peers.ranks - 1) / peers.ranks,
        "cpu_s_per_GB": cpu / iters / (size / 1e9) if size else None,
        "wrong": int(wrong),
        "iters": iters,
    }
