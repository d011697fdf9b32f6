"""The state of the machine during a comparison."""

import contextlib
import os
import resource
import time
from pathlib import Path

from .processes import CompareError

CONGESTION_SYSCTL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


class NoiseMeter:
    """CPUs that were busy with something else than this script and its children, on average.

    The kernel measures idle time, and merely samples busy time: so busy is elapsed less idle.
    Children count once they have been waited for.
    """

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


@contextlib.contextmanager
def congestion_control(name, sysctl=CONGESTION_SYSCTL):
    """Sets the system's TCP congestion control for the block (a peer has no option for it).

    "system" leaves it alone. Yields what is in force.
    """
    before = sysctl.read_text().strip()
    if name in ("system", before):
        yield before
        return
    try:
        sysctl.write_text(name)
    except OSError as error:
        raise CompareError(
            f"cannot set {sysctl} to {name}: {error.strerror}; run as root, or with --congestion system"
        ) from error
    try:
        yield name
    finally:
        sysctl.write_text(before)
