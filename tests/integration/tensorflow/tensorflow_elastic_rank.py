"""Trains a small model by hvd.elastic, and says at each step who took part.

    tensorflow_elastic_rank.py graph|fit [SLOT:STEP]

It ends when there is a file "stop". The first process of the slot is killed at the step. In the end a rank prints its weights."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import rueda  # noqa: E402
import rueda.tensorflow as hvd  # noqa: E402
import rueda.tensorflow.keras as hvd_keras  # noqa: E402
import tensorflow as tf  # noqa: E402

SLOT = int(os.environ["RANK"])  # of the first generation: a process in the place of another has the same
BATCHES = 5  # of an epoch

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


def death_of(arguments):
    """Returns the step at which this process is killed, or None."""
    is_first = not os.path.exists(f"born{SLOT}")
    with open(f"born{SLOT}", "w", encoding="utf-8"):
        pass
    return next((int(one.split(":")[1]) for one in arguments if is_first and int(one.split(":")[0]) == SLOT), None)


def is_over():
    """Returns whether any rank has found the file, on all ranks alike."""
    return rueda.allreduce(np.array([float(os.path.exists("stop"))]), name="over", op=rueda.Max)[0] > 0


def say(step):
    print(f"step {step} rank {hvd.rank()} of {hvd.size()}", flush=True)


def make_model():
    tf.keras.utils.set_random_seed(SLOT + 1)
    return tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])


def train_by_graph(dies_at):
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)

    @tf.function
    def make_step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - 1) ** 2)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
    state.register_reset_callbacks([lambda: print(f"reset from {state.previous_size} to {state.current_size}", flush=True)])

    @hvd.elastic.run
    def train(state):
        while not is_over():
            if state.step == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            make_step(tf.fill([4, 8], 0.1 * (1 + state.step % 7)))
            state.step += 1
            say(state.step)
            if state.step % 2 == 0:
                state.commit()
            time.sleep(0.02)

    train(state)
    return model


def train_by_fit(dies_at):
    model = make_model()
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    state = hvd_keras.elastic.KerasState(model, epoch=0, batch=0)
    state.register_reset_callbacks([lambda: print(f"reset from {state.previous_size} to {state.current_size}", flush=True)])

    class Watching(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if dies_at is not None and state.epoch * BATCHES + batch == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)

        def on_epoch_end(self, epoch, logs=None):
            assert state.epoch == epoch + 1 and state.batch == 0, (state.epoch, epoch, state.batch)
            say(state.epoch * BATCHES)
            self.model.stop_training = is_over()

    @hvd_keras.elastic.run
    def train(state):
        rows = np.random.default_rng(hvd.rank()).normal(size=(4 * BATCHES, 8)).astype(np.float32)
        callbacks = [hvd_keras.elastic.UpdateEpochStateCallback(state), hvd_keras.elastic.UpdateBatchStateCallback(state),
                     hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=2), Watching()]
        model.fit(rows, rows.sum(1, keepdims=True), batch_size=4, initial_epoch=state.epoch, epochs=1_000_000, verbose=0,
                  callbacks=callbacks)

    train(state)
    return model


def main():
    print("pid", os.getpid(), flush=True)
    dies_at = death_of(sys.argv[2:])
    hvd.init()
    model = {"graph": train_by_graph, "fit": train_by_fit}[sys.argv[1]](dies_at)
    print("weights", b"".join(np.asarray(one).tobytes() for one in model.get_weights()).hex(), flush=True)
    hvd.shutdown()


main()
