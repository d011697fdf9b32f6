"""A rank whose graph has 200 gradients in an order of its own, and one thread for all ops: tensorflow_random_order.py STEPS. No op may
keep that thread from the others."""

import os
import random
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import rueda.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402

GRADIENTS = 200

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def main():
    hvd.init()
    order = list(range(GRADIENTS))
    random.Random(hvd.rank()).shuffle(order)

    @tf.function
    def step(x):
        reduced = {}
        before = x
        for i in order:  # each comes a little after the one before it, as in a backward pass
            before = before + 1e-3
            reduced[i] = hvd.allreduce(before * 0 + x * float(i), name=f"gradient {i}")
        return tf.stack([reduced[i] for i in range(GRADIENTS)])

    mean = np.arange(GRADIENTS)[:, None] * np.ones(8) * (hvd.size() + 1) / 2
    for number in range(int(sys.argv[1])):
        found = step(tf.fill([8], hvd.rank() + 1.0)).numpy()
        if not np.allclose(found, mean):
            raise AssertionError(f"step {number}: {found}")
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
