"""What the programs of chaos tests share: their log, and their sums."""

import json
import os
import time

import numpy as np
import rueda

SLOT = int(os.environ["RANK"])  # The rank that this process, or the one in whose place it is, had at first.


class Log:
    """Writes lines of JSON to FOLDER/SLOT.PID."""

    def __init__(self, folder):
        self._file = open(os.path.join(folder, f"{SLOT}.{os.getpid()}"), "w", encoding="utf-8", buffering=1)

    def say(self, what, **values):
        self._file.write(json.dumps({"what": what, "at": time.monotonic(), "slot": SLOT, "pid": os.getpid(), **values}) + "\n")


def total(value, name, op=rueda.Sum):
    return rueda.allreduce(np.array([float(value)]), name=name, op=op)[0]


def find_members():
    """Returns the slots that take part, as bits."""
    members = int(total(2 ** SLOT, "members"))
    assert members.bit_count() == rueda.size() and members & (1 << SLOT), (members, rueda.size())
    return members
