"""Works in an elastic job until a file says stop, and tells what happens to it, a line of JSON for each: how long after boot, by a
clock that all processes of the machine share.

    faults_rank.py rueda|gloo STATE_BYTES STOP_FILE

Events: init (it begins to take part), first (it has made the first step with so many ranks), error (a step has failed), leave (it
leaves, so that others can take part). Each generation begins with a broadcast of the state from rank 0.
"""

import json
import os
import sys
import time

import numpy as np

PAUSE_S = 0.002


def say(event, **more):
    print(json.dumps({"slot": int(os.environ["RANK"]), "pid": os.getpid(), "event": event, "at": time.monotonic(), **more}),
          flush=True)


def work_with_rueda(state_bytes, stop_file):
    import rueda

    state = None
    while True:
        try:
            say("init")
            rueda.init()
            if state is None:
                state = rueda.empty(state_bytes // 4, np.float32)
                state[:] = 1
            rueda.broadcast_(state, 0, name="state")
            is_first = True
            while True:
                wish = 2 if os.path.exists(stop_file) else int(rueda.hosts_changed())
                agreed = rueda.allreduce(np.array([wish], np.int32), name="step", op=rueda.Max)[0]
                if is_first:
                    say("first", size=rueda.size(), rank=rueda.rank())
                    is_first = False
                if agreed == 2:
                    return rueda.shutdown()
                if agreed == 1:
                    say("leave")
                    break
                time.sleep(PAUSE_S)
        except rueda.RuedaError as error:
            say("error", text=str(error))
        rueda.shutdown()


def work_with_gloo(state_bytes, stop_file):
    import torch
    import torch.distributed as dist

    state = torch.ones(state_bytes // 4)
    say("init")
    dist.init_process_group("gloo")
    dist.broadcast(state, 0)
    is_first = True
    while True:
        wish = torch.tensor([2 if os.path.exists(stop_file) else 0])
        try:
            dist.all_reduce(wish, dist.ReduceOp.MAX)
        except RuntimeError as error:
            say("error", text=str(error))
            raise
        if is_first:
            say("first", size=dist.get_world_size(), rank=dist.get_rank())
            is_first = False
        if wish[0] == 2:
            return
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    {"rueda": work_with_rueda, "gloo": work_with_gloo}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
