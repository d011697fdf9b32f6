"""Runs the cases of a module, jax_MODULE.py, as a rank: functions named case_*, in the order of the text, on all ranks at once.
Says "ok" at the end."""

import importlib
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"

import rueda.jax as hvd  # noqa: E402


def main():
    cases = importlib.import_module(f"jax_{sys.argv[1]}")
    hvd.init()
    for name, case in list(vars(cases).items()):
        if name.startswith("case_") and (len(sys.argv) < 3 or name in sys.argv[2:]):
            try:
                case()
            except BaseException:
                print(f"FAILED {name} on rank {hvd.rank() if hvd.is_initialized() else '?'}", flush=True)
                raise
            hvd.barrier()
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
