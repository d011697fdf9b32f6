"""A rank of bench/tensorflow_training.py: tensorflow_training_rank.py OPTIONS, which are JSON. Trains a model of tf.keras by fit(), and
prints the steps a second after the warm-up, and what was learned, as JSON."""

import json
import os
import sys
import time

OPTIONS = json.loads(sys.argv[1])  # model, way, keras, batch, steps, warmup, layers, width, intra, inter, rate, port
WAY = OPTIONS["way"]  # alone, none, rueda or strategy
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1" if OPTIONS["keras"] == 2 else "0"
if WAY == "strategy":
    workers = [f"127.0.0.1:{OPTIONS['port'] + rank}" for rank in range(SIZE)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": RANK}})

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

layers = tf.keras.layers


class Clock(tf.keras.callbacks.Callback):
    """Notes when the last step of the warm-up, and the last of all, have ended."""

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == OPTIONS["warmup"]:
            self.began = time.perf_counter()
        self.ended = time.perf_counter()


def dense_model():
    hidden = [layers.Dense(OPTIONS["width"], activation="relu", use_bias=False) for _ in range(OPTIONS["layers"])]
    return tf.keras.Sequential([tf.keras.Input((OPTIONS["width"],)), *hidden])


def digits_model():
    """Returns the network of client/python/examples/tensorflow_digits.py."""
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)), layers.Conv2D(8, 3, activation="relu"), layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dense(10)])


def block(x, filters, stride):
    """Returns a residual block of two convolutions over x."""
    def normalised(y, step):
        return layers.BatchNormalization(momentum=0.9)(layers.Conv2D(filters, 3, step, padding="same", use_bias=False)(y))

    inner = normalised(layers.ReLU()(normalised(x, stride)), 1)
    short = x if stride == 1 else layers.Conv2D(filters, 1, stride, use_bias=False)(x)
    return layers.ReLU()(layers.Add()([short, inner]))


def resnet_model():
    """Returns ResNet-20, for images of 16 x 16: three stages of three blocks, of 16, 32 and 64 filters."""
    images = tf.keras.Input((16, 16, 1))
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Conv2D(16, 3, padding="same", use_bias=False)(images)))
    for stage, filters in enumerate((16, 32, 64)):
        for number in range(3):
            x = block(x, filters, 2 if stage > 0 and number == 0 else 1)
    return tf.keras.Model(images, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


MODELS = {"dense": dense_model, "digits": digits_model, "resnet": resnet_model}


def load_digits():
    """Returns (images, digits) to learn from, and (images, digits) to be tested with: scikit-learn's, for ResNet twice as large."""
    from sklearn.datasets import load_digits as load
    digits = load()
    images = (digits.images[..., np.newaxis] / 16).astype(np.float32)
    if OPTIONS["model"] == "resnet":
        images = images.repeat(2, axis=1).repeat(2, axis=2)
    order = np.random.default_rng(1).permutation(len(images))
    cut = len(order) * 8 // 10
    return tuple((images[part], digits.target[part].astype(np.int32)) for part in (order[:cut], order[cut:]))


def make_data():
    """Returns this rank's batches without an end, and (images, digits) to be tested with, or None. A single process has the rows of
    all ranks in a batch."""
    rows = OPTIONS["batch"] * (OPTIONS["ranks"] if WAY == "alone" else 1)
    if OPTIONS["model"] == "dense":
        rng = np.random.default_rng(RANK)
        pair = [tf.constant(rng.normal(size=(rows, OPTIONS["width"])).astype(np.float32)) for _ in range(2)]
        return tf.data.Dataset.from_tensors(tuple(pair)).cache().repeat(), None
    learnt, tested = load_digits()
    own = tf.data.Dataset.from_tensor_slices(tuple(one[RANK::SIZE] for one in learnt)).cache()
    return own.shuffle(len(learnt[0]), seed=RANK).repeat().batch(rows, drop_remainder=True), tested


def compile_model(wrap):
    model = MODELS[OPTIONS["model"]]()
    optimizer = wrap(tf.keras.optimizers.SGD(OPTIONS["rate"], momentum=0.0 if OPTIONS["model"] == "dense" else 0.9))
    if OPTIONS["model"] == "dense":
        model.compile(optimizer, "mse", jit_compile=False)
    else:
        model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def fit(model, data, tested, callbacks):
    """Trains and prints the results. Weights are summed as those who compare ranks need them."""
    clock = Clock()
    model.fit(data, steps_per_epoch=OPTIONS["warmup"] + OPTIONS["steps"], epochs=1, verbose=0, callbacks=[clock, *callbacks])
    weights = [np.asarray(one) for one in model.trainable_weights]
    result = {"steps_a_second": OPTIONS["steps"] / (clock.ended - clock.began), "parameters": sum(one.size for one in weights),
              "sum": float(sum(np.abs(one).sum(dtype=np.float64) for one in weights)), "accuracy": None}
    if tested is not None:
        said = np.concatenate([np.asarray(model(tested[0][i:i + 90], training=False)) for i in range(0, len(tested[0]), 90)])
        result["accuracy"] = float((said.argmax(1) == tested[1]).mean())
    print(json.dumps(result), flush=True)


def train_by_strategy():
    ring = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    # It must be made before anything runs.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compile_model(lambda optimizer: optimizer)
    data, tested = make_data()  # a rank's own: the strategy would cut the batches of a dataset that it is given as it is
    fit(model, strategy.distribute_datasets_from_function(lambda _: data), tested, [])


def main():
    tf.config.threading.set_intra_op_parallelism_threads(OPTIONS["intra"])
    tf.config.threading.set_inter_op_parallelism_threads(OPTIONS["inter"])
    if WAY == "strategy":
        train_by_strategy()
        return
    tf.keras.utils.set_random_seed(1)
    if WAY != "rueda":
        fit(compile_model(lambda optimizer: optimizer), *make_data(), [])
        return
    import rueda.tensorflow.keras as hvd
    hvd.init()
    fit(compile_model(hvd.DistributedOptimizer), *make_data(), [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    hvd.shutdown()


if __name__ == "__main__":
    main()
