#!/usr/bin/python3
"""Trains a convolutional network on handwritten digits by Keras's fit(), in the form in which Horovod
scripts are written: only the import is another one.

    ruedarun -np 4 python3 tensorflow_digits.py

It needs TensorFlow (2.15 or later) and scikit-learn.
"""

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import rueda.tensorflow.keras as hvd  # noqa: E402


def load_data():
    """Returns (images, digits) to learn from, and (images, digits) to be tested with."""
    digits = load_digits()
    images = (digits.images[..., np.newaxis] / 16).astype(np.float32)
    order = np.random.default_rng(1).permutation(len(images))
    cut = len(order) * 8 // 10
    learnt, tested = order[:cut], order[cut:]
    return (images[learnt], digits.target[learnt]), (images[tested], digits.target[tested])


def make_model():
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)),
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(2),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10),
    ])


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits, data-parallel, as Horovod scripts do.")
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.02, help="of one rank; it is multiplied by their number")
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
    parser.add_argument("--require", type=float, default=0.0, help="fail below this accuracy")
    arguments = parser.parse_args()

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.keras.utils.set_random_seed(42 + hvd.rank())

    (images, digits), tested = load_data()
    count = len(images) // hvd.size()  # every rank takes as many steps as the others
    own = slice(hvd.rank() * count, (hvd.rank() + 1) * count)
    training = tf.data.Dataset.from_tensor_slices((images[own], digits[own])).shuffle(count).batch(
        arguments.batch_size, drop_remainder=True)

    model = make_model()
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = tf.keras.optimizers.SGD(arguments.lr * hvd.size(), momentum=0.9)
    model.compile(hvd.DistributedOptimizer(optimizer, compression=compression),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                 hvd.callbacks.LearningRateWarmupCallback(arguments.lr * hvd.size(), warmup_epochs=3)]
    model.fit(training, epochs=arguments.epochs, callbacks=callbacks, validation_data=tested, validation_batch_size=90,
              verbose=2 if hvd.rank() == 0 else 0)

    _, accuracy = model.evaluate(*tested, batch_size=90, verbose=0)
    if hvd.rank() == 0:
        print(f"test accuracy {accuracy:.4f}", flush=True)
    hvd.shutdown()
    return 0 if accuracy >= arguments.require else 1


if __name__ == "__main__":
    sys.exit(main())
