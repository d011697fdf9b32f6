"""Runs the cases of modules, tensorflow_MODULE.py, as a rank: tensorflow_rank.py MODULE,MODULE [CASE...]. Cases are functions named
case_*, in the order of the text, on all ranks at once. Says "ok" at the end."""

import importlib
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import rueda.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


def main():
    hvd.init()
    for module in sys.argv[1].split(","):
        cases = importlib.import_module(f"tensorflow_{module}")
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
