"""Ranks that say what they catch: tensorflow_death_rank.py graph|eager|fit|skips. The last rank is killed while the others wait for its
gradients, in a graph, eagerly, or in fit(). With `skips` it lives, and has no gradient of a variable."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import rueda.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402


def say_what_is_caught(call):
    try:
        call()
    except Exception as error:  # whatever it is, it is what a program would catch
        print(f"caught {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        sys.exit(1)
    print("nothing was caught", flush=True)


def die_in_step(step):
    if step == 5 and hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def train(is_graph):
    x = tf.Variable(tf.ones([1000]))
    y = tf.Variable(tf.ones([10]))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x) * tf.reduce_sum(y)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [x, y])
        x.assign_sub(1e-6 * gradients[0])
        y.assign_sub(1e-6 * gradients[1])

    one = tf.function(step) if is_graph else step
    for number in range(10):
        die_in_step(number)
        one()


def fit():
    import rueda.tensorflow.keras as hvd_keras

    class Dying(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            die_in_step(batch)

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
    model.fit(np.ones((100, 4), np.float32), np.ones((100, 2), np.float32), batch_size=10, verbose=0, callbacks=[Dying()])


def skip():
    both, own = tf.Variable([1.0], name="of_both"), tf.Variable([1.0], name="only_here")

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(both) + (tf.reduce_sum(own) if hvd.rank() == 0 else 0.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, [both, own])

    step()
    time.sleep(30)  # the other rank goes on to something else


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the job; first we want to have our say
    hvd.init()
    how = sys.argv[1]
    say_what_is_caught({"graph": lambda: train(True), "eager": lambda: train(False), "fit": fit, "skips": skip}[how])


if __name__ == "__main__":
    main()
