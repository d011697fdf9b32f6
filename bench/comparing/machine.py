"""Watches the state of the machine during a comparison."""

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from .processes import CompareError

NOISE_LIMIT_CORES = 0.10


class NoiseMeter:
    """Measures how many CPUs were busy with something else than this script and its children, on average.

    The kernel measures idle time, and merely samples busy time; so busy time is elapsed time less idle time. Children count once
    they have been waited for."""

    def __init__(self):
        self.start = self._now()

    @staticmethod
    def _now():
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        idle_s = (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
        own_s = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            own_s += usage.ru_utime + usage.ru_stime
        return time.monotonic(), idle_s, own_s

    def cores(self):
        before, after = self.start, self._now()
        elapsed_s, idle_s, own_s = (b - a for a, b in zip(before, after))
        busy_s = elapsed_s * os.cpu_count() - idle_s
        return max(0.0, (busy_s - own_s) / elapsed_s)


def require_quiet(busy_ok, log, seconds=1.0, meter_type=NoiseMeter):
    """Checks the machine before anything is measured, because numbers that were measured beside other work mean little."""
    meter = meter_type()
    time.sleep(seconds)
    noise = meter.cores()
    if noise <= NOISE_LIMIT_CORES:
        return
    said = f"the machine is busy: other work takes {noise:.2f} of {os.cpu_count()} cores"
    if not busy_ok:
        raise CompareError(f"{said}; wait until it has ended, or go on with --busy-ok, and distrust the numbers")
    log(f"{said}: distrust the numbers")


@contextlib.contextmanager
def hogs(count):
    """Runs so many processes that want a CPU each, for the block; they count as this script's, and not as other work."""
    running = []
    try:
        for _ in range(count):
            running.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL))
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()
