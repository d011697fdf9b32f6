"""Trains by a loop of steps and hvd.elastic, and says at each step who took part.

    tensorflow_elastic_rank.py graph|variables [SLOT:STEP]

What is trained is a small model of Keras, or variables by themselves. It ends when there is a file "stop". The first process of the slot
is killed at the step. In the end a rank prints its weights."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import rueda.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402
from elastic_steps import SLOT, death_of, is_over, say, say_resets, say_weights  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


def rows_of(step):
    return tf.fill([4, 8], 0.1 * (1 + step % 7))


def train_in_steps(state, dies_at, make_step, check=lambda: None):
    """Calls make_step(rows) until all is over, and check() before each step. Every second step is kept."""
    say_resets(state)

    @hvd.elastic.run
    def train(state):
        while not is_over():
            check()
            if state.step == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            make_step(rows_of(state.step))
            state.step += 1
            say(state.step)
            if state.step % 2 == 0:
                state.commit()
            time.sleep(0.02)

    train(state)


def train_a_model(dies_at):
    tf.keras.utils.set_random_seed(SLOT + 1)
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)

    @tf.function
    def make_step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - 1) ** 2)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    train_in_steps(hvd.elastic.TensorFlowKerasState(model, optimizer, step=0), dies_at, make_step)
    return model.get_weights()


def train_variables(dies_at):
    """Has one variable count steps, which must be the number in the state, whoever has gone back to it or come to it."""
    weight = tf.Variable(tf.fill([8, 1], float(SLOT)))
    velocity = tf.Variable(tf.zeros([8, 1], tf.float64))
    steps = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def make_step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((rows @ weight - 1) ** 2)
        gradient = hvd.DistributedGradientTape(tape).gradient(loss, weight)
        velocity.assign(0.9 * velocity - 0.01 * tf.cast(gradient, tf.float64))
        weight.assign_add(tf.cast(velocity, tf.float32))
        steps.assign_add(1)

    state = hvd.elastic.TensorFlowState([weight, velocity, steps], step=0)

    def check():
        assert int(steps) == state.step, f"{int(steps)} steps have been taken, and the state has {state.step}"

    train_in_steps(state, dies_at, make_step, check)
    return [weight, velocity, steps]


def main():
    print("pid", os.getpid(), flush=True)
    dies_at = death_of(sys.argv[2:])
    hvd.init()
    say_weights({"graph": train_a_model, "variables": train_variables}[sys.argv[1]](dies_at))
    hvd.shutdown()


main()
