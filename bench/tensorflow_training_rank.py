"""A rank of bench/tensorflow_training.py: tensorflow_training_rank.py rueda|strategy LAYERS WIDTH BATCH STEPS WARMUP PORT. Trains
layers of tf.keras by fit(), and prints the steps a second after the warm-up as JSON. PORT and those above it are the strategy's."""

import json
import os
import sys
import time

WAY = sys.argv[1]
LAYERS, WIDTH, BATCH, STEPS, WARMUP, PORT = (int(one) for one in sys.argv[2:])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the strategy does not serve Keras 3
if WAY == "strategy":
    workers = [f"127.0.0.1:{PORT + rank}" for rank in range(SIZE)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": RANK}})

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)


class Clock(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == WARMUP:
            self.began = time.perf_counter()
        self.ended = time.perf_counter()


def make_model():
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu", use_bias=False) for _ in range(LAYERS)]
    return tf.keras.Sequential([tf.keras.Input((WIDTH,)), *layers])


def make_data():
    rng = np.random.default_rng(RANK)
    rows = [rng.normal(size=(BATCH, WIDTH)).astype(np.float32) for _ in range(2)]
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors(tuple(tf.constant(one) for one in rows)).cache().repeat().with_options(options)


def fit(model, callbacks):
    clock = Clock()
    model.fit(make_data(), steps_per_epoch=WARMUP + STEPS, epochs=1, verbose=0, callbacks=[clock, *callbacks])
    kernels = [one.numpy() if hasattr(one, "numpy") else np.asarray(one) for one in model.trainable_weights]
    print(json.dumps({"steps_a_second": STEPS / (clock.ended - clock.began), "parameters": sum(one.size for one in kernels),
                      "sum": float(sum(np.abs(one).sum(dtype=np.float64) for one in kernels))}), flush=True)


def main():
    if WAY == "rueda":
        import rueda.tensorflow.keras as hvd
        hvd.init()
        tf.keras.utils.set_random_seed(1)
        model = make_model()
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1e-3)), "mse")
        fit(model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        hvd.shutdown()
        return
    ring = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    # It must be made before anything runs.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = make_model()
        model.compile(tf.keras.optimizers.SGD(1e-3), "mse")
    fit(model, [])


if __name__ == "__main__":
    main()
