"""Trains a small model by fit() and hvd.elastic, and says after each epoch who took part.

    keras_elastic_rank.py tf.keras|keras [SLOT:STEP]

keras is Keras 3, on whatever backend KERAS_BACKEND names. It ends when there is a file "stop". The first process of the slot is killed
at the step. In the end a rank prints its weights."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
from elastic_steps import SLOT, death_of, is_over, say, say_resets, say_weights  # noqa: E402

if sys.argv[1] == "tf.keras":
    import rueda.tensorflow.keras as hvd
    from tensorflow import keras
else:
    import keras
    import rueda.keras as hvd

BATCHES = 5  # of an epoch


def main():
    print("pid", os.getpid(), flush=True)
    dies_at = death_of(sys.argv[2:])
    hvd.init()
    keras.utils.set_random_seed(SLOT + 1)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    say_resets(state)

    class Watching(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if dies_at is not None and state.epoch * BATCHES + batch == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)

        def on_epoch_end(self, epoch, logs=None):
            assert state.epoch == epoch + 1 and state.batch == 0, (state.epoch, epoch, state.batch)
            say(state.epoch * BATCHES)
            self.model.stop_training = is_over()

    @hvd.elastic.run
    def train(state):
        rows = np.random.default_rng(hvd.rank()).normal(size=(4 * BATCHES, 8)).astype(np.float32)
        # A commit ends fit() if ranks have come, and must not keep an epoch from being told.
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state), Watching(),
                     hvd.elastic.CommitStateCallback(state, batches_per_commit=2)]
        model.fit(rows, rows.sum(1, keepdims=True), batch_size=4, initial_epoch=state.epoch, epochs=1_000_000, verbose=0,
                  callbacks=callbacks)

    train(state)
    say_weights(model.get_weights())
    hvd.shutdown()


main()
