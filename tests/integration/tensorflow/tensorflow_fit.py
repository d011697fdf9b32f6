"""A rank that learns handwritten digits by fit(), from data and weights of its own, and checks that its weights are, bit by bit, those
of all others after each epoch. Units that are dropped out differ between ranks."""

import hashlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import rueda.tensorflow.keras as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402
from rueda.tensorflow import allgather_object  # noqa: E402

EPOCHS = 4


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
    return (digits.data / 16).astype(np.float32), digits.target


class SameWeights(tf.keras.callbacks.Callback):
    """Compares what is trained; the statistics of batch normalisation are of each rank's own data, as with Horovod."""

    def on_epoch_end(self, epoch, logs=None):
        digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in self.model.trainable_weights)).hexdigest()
        digests = allgather_object(digest)
        assert len(set(digests)) == 1, f"epoch {epoch}: {digests}"


def main():
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(hvd.rank())
    x, y = load_digits()
    own = slice(hvd.rank(), len(x) // hvd.size() * hvd.size(), hvd.size())
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((64,)), layers.Dense(32), layers.BatchNormalization(), layers.Activation("relu"),
                                 layers.Dropout(0.2), layers.Dense(10)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.005 * hvd.size())),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    masks = allgather_object(float(np.asarray(layers.Dropout(0.5)(np.ones((1, 64), np.float32), training=True)).dot(np.arange(64.0))[0]))
    assert len(set(masks)) == hvd.size(), masks
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), SameWeights()]
    history = model.fit(x[own], y[own], batch_size=16, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    averages = allgather_object(history.history["accuracy"])
    assert all(one == averages[0] for one in averages), averages
    assert averages[0][-1] > 0.9, averages[0]
    hvd.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
