"""Runs the cases of a module, distributed_MODULE.py, as a rank with torch.distributed on the backend "rueda": functions named
case_*, in the order of the text, on all ranks at once. Says "ok" at the end."""

import importlib
import os
import sys
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch.distributed as dist  # noqa: E402

import rueda.distributed  # noqa: E402, F401

TIMEOUT = timedelta(seconds=60)


def main():
    cases = importlib.import_module(f"distributed_{sys.argv[1]}")
    dist.init_process_group(os.environ.get("RUEDA_TEST_BACKEND", "rueda"), timeout=TIMEOUT)
    rank = dist.get_rank()
    for name, case in list(vars(cases).items()):
        if name.startswith("case_") and (len(sys.argv) < 3 or name in sys.argv[2:]):
            try:
                case()
            except BaseException:
                print(f"FAILED {name} on rank {rank}", flush=True)
                raise
            dist.barrier()
    dist.destroy_process_group()
    print("ok", flush=True)
    if hasattr(cases, "end"):
        cases.end()


if __name__ == "__main__":
    main()
