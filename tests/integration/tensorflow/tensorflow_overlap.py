"""A rank that trains 20 layers in a graph, for a timeline: tensorflow_overlap.py STEPS."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import rueda.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402

LAYERS, WIDTH, ROWS = 20, 256, 512

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)  # one runs what came last first, the reductions after all gradients


def main():
    hvd.init()
    weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [1, i]) / WIDTH ** 0.5, name=f"layer{i}") for i in range(LAYERS)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x * x)
        for weight, gradient in zip(weights, hvd.DistributedGradientTape(tape).gradient(loss, weights)):
            weight.assign_sub(1e-6 * gradient)

    for _ in range(int(sys.argv[1])):
        step(tf.ones([ROWS, WIDTH]) / WIDTH)
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
