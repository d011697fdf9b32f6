"""Reduces memory of rueda.empty() in each generation of an elastic job, and says what was copied.

    elastic_arena_rank.py GENERATIONS

The first process of slot 1 dies in the first generation; its successor makes one step, and ends as the others do.
"""

import os
import sys
import time

import numpy as np
import rueda

SLOT = int(os.environ["RANK"])
COUNT = 1_000_000


def reduce_once(kept):
    kept[:] = SLOT + 1
    rueda.allreduce_(kept, name="kept", op=rueda.Sum)
    stats = rueda.stats()
    print(f"size {rueda.size()} sum {kept[0]:.0f} {kept[-1]:.0f} copied {stats.bytes_copied_in + stats.bytes_copied_out}", flush=True)


def main():
    is_first = not os.path.exists(f"born{SLOT}")
    with open(f"born{SLOT}", "w", encoding="utf-8"):
        pass
    rueda.init()
    kept = rueda.empty(COUNT, np.float32)
    reduce_once(kept)
    if SLOT == 1 and is_first:
        os._exit(3)
    for _ in range(int(sys.argv[1]) if is_first else 0):
        try:
            while not rueda.allreduce(np.array([rueda.hosts_changed()], np.int64), name="changed", op=rueda.Max)[0]:
                time.sleep(0.01)
        except rueda.RuedaError as error:
            print(type(error).__name__, flush=True)
        rueda.shutdown()
        rueda.init()
        reduce_once(kept)
    rueda.shutdown()


main()
