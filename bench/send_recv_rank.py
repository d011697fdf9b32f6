"""Plays ping-pong between the first and the last rank; bench/send_recv.py starts it.

send_recv_rank.py rueda|gloo BYTES ROUNDS"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

WARM_UP = 20


def main():
    way, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    if way == "rueda":
        import rueda
        rueda.init()
        array = rueda.empty((size,), "uint8")
        array[:] = rank
        send, recv, barrier, end = rueda.send, rueda.recv, rueda.barrier, rueda.shutdown
    else:
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        array = torch.full((size,), rank, dtype=torch.uint8)
        send, recv, barrier, end = dist.send, dist.recv, dist.barrier, dist.destroy_process_group
    for number in (WARM_UP, rounds):
        barrier()
        began = time.perf_counter()
        for _ in range(number):
            if rank == 0:
                send(array, last)
                recv(array, last)
            elif rank == last:
                recv(array, 0)
                send(array, 0)
        took = time.perf_counter() - began
    assert array[-1] == 0, "the array is not rank 0's"
    if rank == 0:
        print(json.dumps({"seconds": took / rounds / 2}), flush=True)
    barrier()
    end()


main()
