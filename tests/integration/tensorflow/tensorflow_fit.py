"""A rank that learns handwritten digits by fit(), from data and weights of its own, and checks that its weights are, bit by bit, those
of all others after each epoch, that nothing is copied out of shared memory, and that the job tells digits apart as well as one process
that has all data. Units that are dropped out differ between ranks."""

import hashlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import rueda  # noqa: E402
import rueda.tensorflow.keras as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402
from rueda.tensorflow import allgather_object  # noqa: E402

EPOCHS = 8


def load_digits():
    """Returns images and their numbers: scikit-learn's, or where that is not installed patterns that are as easy to tell apart."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        rng = np.random.default_rng(3)
        numbers = rng.integers(0, 10, 1800)
        patterns = rng.uniform(size=(10, 64))
        return (patterns[numbers] + rng.normal(0, 0.3, (1800, 64))).astype(np.float32), numbers
    digits = load()
    order = np.random.default_rng(3).permutation(len(digits.data))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order]


class SameWeights(tf.keras.callbacks.Callback):
    """Compares what is trained; the statistics of batch normalisation are of each rank's own data, as with Horovod."""

    def on_epoch_end(self, epoch, logs=None):
        digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in self.model.trainable_weights)).hexdigest()
        digests = allgather_object(digest)
        assert len(set(digests)) == 1, f"epoch {epoch}: {digests}"


class NoCopies(tf.keras.callbacks.Callback):
    """Looks at what steps copy out; objects that are gathered between epochs are copied."""

    def on_train_batch_begin(self, batch, logs=None):
        self.before = rueda.stats().bytes_copied_out

    def on_train_batch_end(self, batch, logs=None):
        copied = rueda.stats().bytes_copied_out - self.before
        assert copied == 0, f"step {batch} has copied {copied} bytes"


def compiled_model(optimizer):
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((64,)), layers.Dense(32), layers.BatchNormalization(), layers.Activation("relu"),
                                 layers.Dropout(0.2), layers.Dense(10)])
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def accuracy_of(model, x, y):
    return model.evaluate(x, y, batch_size=100, verbose=0)[1]


def main():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(rank)
    x, y = load_digits()
    tested = (x[-400:], y[-400:])
    own = slice(rank, (len(x) - 400) // size * size, size)
    model = compiled_model(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.005 * size)))
    dropout = tf.keras.layers.Dropout(0.5)
    masks = allgather_object(float(np.asarray(dropout(np.ones((1, 64), np.float32), training=True)).dot(np.arange(64.0))[0]))
    assert len(set(masks)) == size, masks
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), SameWeights(), NoCopies()]
    history = model.fit(x[own], y[own], batch_size=16, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    averages = allgather_object(history.history["accuracy"])
    assert all(one == averages[0] for one in averages), averages
    hvd.shutdown()
    together = accuracy_of(model, *tested)
    assert together > 0.9, together
    if rank == 0:
        alone = compiled_model(tf.keras.optimizers.Adam(0.005 * size))
        alone.fit(x[:-400], y[:-400], batch_size=16 * size, epochs=EPOCHS, verbose=0)
        assert abs(accuracy_of(alone, *tested) - together) < 0.03, (accuracy_of(alone, *tested), together)
        print(f"accuracy {together:.4f}, of one process {accuracy_of(alone, *tested):.4f}", flush=True)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
