"""Holds cases of tensorflow_rank.py: optimizers and callbacks of tf.keras and, where it is Keras 3, of rueda.keras."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import rueda.tensorflow as hvd
import rueda.tensorflow.keras as hvd_keras
import tensorflow as tf
from tensorflow_expect import expect, expect_close, expect_error

IS_KERAS_3 = int(getattr(tf.keras, "__version__", "2").split(".")[0]) >= 3


def small_model(**layer):
    return tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2, **layer)])


def own_data(seed=0, count=16):
    rng = np.random.default_rng(seed + hvd.rank())
    return rng.normal(size=(count, 3)).astype(np.float32), rng.normal(size=(count, 2)).astype(np.float32)


def all_data(count=16):
    pairs = [(np.random.default_rng(rank), count) for rank in range(hvd.size())]
    xs, ys = zip(*((rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=(n, 2)).astype(np.float32)) for rng, n in pairs))
    return np.concatenate(xs), np.concatenate(ys)


def equal_on_all_ranks(values):
    flat = np.concatenate([np.asarray(value).ravel() for value in values])
    everyones = np.asarray(hvd.allgather(tf.constant(flat[None, :])))
    for one in everyones:
        expect(one, flat)


def case_training_is_that_of_one_process_with_all_data():
    for make in (lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9), lambda: tf.keras.optimizers.Adam(0.1)):
        alone, together = small_model(), small_model()
        start = hvd.broadcast_object([np.asarray(value) for value in alone.get_weights()], 0)
        alone.set_weights(start)
        together.set_weights(start)
        alone.compile(make(), "mse")
        alone.fit(*all_data(), batch_size=16 * hvd.size(), epochs=5, shuffle=False, verbose=0)
        together.compile(hvd_keras.DistributedOptimizer(make()), "mse")
        together.fit(*own_data(), batch_size=16, epochs=5, shuffle=False, verbose=0)
        for mine, theirs in zip(together.get_weights(), alone.get_weights()):
            assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-5), (mine, theirs)
        equal_on_all_ranks(together.get_weights())


def case_ranks_begin_alike():
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(2)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.1)), "mse")
    model.fit(*own_data(), epochs=2, verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    equal_on_all_ranks(model.get_weights())


def case_metrics_are_averaged():
    model = small_model()
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse", metrics=["mae"])
    history = model.fit(*own_data(), epochs=2, verbose=0, callbacks=[hvd_keras.callbacks.MetricAverageCallback()])
    equal_on_all_ranks([history.history["loss"], history.history["mae"]])


def case_learning_rates():
    size = hvd.size()
    rates = []

    class Noting(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(np.asarray(self.model.optimizer.learning_rate)))

    def fit(callback, epochs):
        rates.clear()
        model = small_model()
        model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1e-3, momentum=0.9)), "mse")
        history = model.fit(*own_data(), batch_size=8, epochs=epochs, verbose=0, callbacks=[callback, Noting()])
        assert "lr" in history.history
        return list(rates)

    warm = fit(hvd_keras.callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=2), 3)
    assert np.all(np.diff(warm[:4]) >= -1e-6) and abs(warm[3] - 1.0) < 1e-6 and warm[5] == warm[3], warm
    expect_close(warm[0], (0.5 * (size - 1) / 2 + 1) / size)
    expect_close(fit(hvd_keras.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5 ** epoch), 3), [1, 1, 0.5, 0.5, 0.25, 0.25])
    expect_close(fit(hvd_keras.callbacks.LearningRateScheduleCallback(1.0, 0.1, start_epoch=1), 2), [1e-3, 1e-3, 0.1, 0.1])


def case_what_is_saved_is_loaded_without_rueda():
    model = small_model()
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    model.fit(*own_data(), verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        code = ("import sys, tensorflow as tf; model = tf.keras.models.load_model(sys.argv[1]); "
                "print(type(model.optimizer).__name__, 'rueda' in sys.modules)")
        if hvd.rank() == 0:
            run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
            assert "Adam False" in run.stdout, run.stdout + run.stderr
        loaded = hvd_keras.load_model(path)
        assert int(np.asarray(loaded.optimizer.iterations)) == int(np.asarray(model.optimizer.iterations))
        loaded.fit(*own_data(), verbose=0)
    equal_on_all_ranks(loaded.get_weights())


def case_best_models_are_kept():
    with tempfile.TemporaryDirectory() as folder:
        keeper = hvd_keras.callbacks.BestModelCheckpoint(monitor="loss")
        model = small_model()
        model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
        expect_error(ValueError, "set its filepath", lambda: model.fit(*own_data(), verbose=0, callbacks=[keeper]))
        keeper.filepath = os.path.join(folder, "best.keras")
        model.fit(*own_data(), verbose=0, callbacks=[keeper])
        assert os.path.exists(keeper.filepath)


def case_optimizers_that_cannot_be():
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    expect_error(ValueError, "already", lambda: hvd_keras.DistributedOptimizer(optimizer))
    expect_error(ValueError, "one of Keras's", lambda: hvd_keras.DistributedOptimizer(object()))
    expect_error(ValueError, "1 or more", lambda: hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(), backward_passes_per_step=0))
    if IS_KERAS_3:
        expect_error(ValueError, "LossScaleOptimizer(optimizer)", lambda: tf.keras.optimizers.LossScaleOptimizer(optimizer))


def case_a_step_for_xla_is_refused_before_it_is_taken():
    model = small_model()
    before = [np.asarray(value) for value in model.get_weights()]
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
    expect_error(NotImplementedError, "use compile(jit_compile=False)", lambda: model.fit(*own_data(), verbose=0))
    for mine, theirs in zip(model.get_weights(), before):
        expect(mine, theirs)


def case_several_passes_make_a_step():
    if not IS_KERAS_3:
        return
    for averages in (False, True):
        x = tf.Variable([0.0])
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2,
                                                   average_aggregated_gradients=averages)
        for step in range(4):
            optimizer.apply_gradients([(tf.constant([float(hvd.rank() + step)]), x)])
        total = 2 * (hvd.size() - 1) + 6
        expect_close(x, [-total / (2 if averages else 1)])


def case_an_infinity_on_one_rank_has_all_skip_the_step():
    if not IS_KERAS_3:
        return
    tf.keras.config.set_dtype_policy("mixed_float16")
    try:
        model = small_model()
        model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
        assert isinstance(model.optimizer, tf.keras.optimizers.LossScaleOptimizer)
        broadcast = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
        x, y = own_data()
        model.fit(x, y, batch_size=16, verbose=0, callbacks=[broadcast])
        before = [np.asarray(value) for value in model.get_weights()]
        scale = float(np.asarray(model.optimizer.dynamic_scale))
        infinite = np.full_like(y, np.inf) if hvd.rank() == 0 else y
        model.fit(x, infinite, batch_size=16, verbose=0)
        for mine, theirs in zip(model.get_weights(), before):
            expect(mine, theirs)
        expect(float(np.asarray(model.optimizer.dynamic_scale)), scale / 2)
        model.fit(x, y, batch_size=16, verbose=0)
        equal_on_all_ranks(model.get_weights())
        assert not np.array_equal(model.get_weights()[0], before[0])
    finally:
        tf.keras.config.set_dtype_policy("float32")


def case_layers_that_stay_local():
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2, name="own"), tf.keras.layers.Dense(2)])
    model.compile(hvd_keras.PartialDistributedOptimizer(tf.keras.optimizers.SGD(0.1), local_layers=model.layers[0]), "mse")
    model.fit(*own_data(), batch_size=4, verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    kernels = np.asarray(hvd.allgather(tf.constant(np.asarray(model.layers[0].get_weights()[0])[None])))
    assert hvd.size() == 1 or not np.array_equal(kernels[0], kernels[1])
    equal_on_all_ranks(model.layers[1].get_weights())


def train_normalised(layer, inputs, is_together, mask=None):
    """Returns the gradients of a weight before the layer and of its own, and its statistics after one step."""
    mixing = tf.Variable(np.random.default_rng(1).normal(size=[inputs.shape[-1]] * 2).astype(np.float32))
    factors = tf.linspace(-1.0, 2.0, inputs.shape[-1])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            given = {} if mask is None else {"mask": mask}
            loss = tf.reduce_mean(tf.reduce_sum((layer(tf.tensordot(inputs, mixing, 1), training=True, **given) * factors) ** 3, -1))
        tape = hvd.DistributedGradientTape(tape) if is_together else tape
        return tape.gradient(loss, [mixing, layer.gamma, layer.beta])

    return [*step(), layer.moving_mean, layer.moving_variance]


def case_batches_of_all_ranks_are_normalised_together():
    rank, size = hvd.rank(), hvd.size()
    for shape in ((6 * size, 3), (2 * size, 4, 3, 5)):
        whole = tf.constant(np.random.default_rng(7).normal(2, 3, size=shape).astype(np.float32))
        own = whole[rank * len(whole) // size:(rank + 1) * len(whole) // size]
        masks = [(None, None)]
        if len(shape) == 4:
            whole_mask = np.ones(shape[:-1], bool)
            whole_mask[:, 0, 0] = False
            masks.append((tf.constant(whole_mask), tf.constant(whole_mask[:len(own)])))
        for whole_mask, own_mask in masks:
            unfused = {} if IS_KERAS_3 else {"fused": False}  # the fused layer of Keras 2 ignores masks
            alone = train_normalised(tf.keras.layers.BatchNormalization(epsilon=1e-2, **unfused), whole, False, whole_mask)
            together = train_normalised(hvd.SyncBatchNormalization(epsilon=1e-2), own, True, own_mask)
            for mine, theirs in zip(together, alone):
                difference, most = np.abs(mine - theirs).max(), np.abs(theirs).max()
                assert difference < 1e-4 * most, (shape, own_mask is None, mine, theirs)


def case_normalised_together_by_fit():
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(4), hvd_keras.SyncBatchNormalization(), layers.Dense(2)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    model.fit(*own_data(), epochs=2, batch_size=8, verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    equal_on_all_ranks(model.get_weights())  # the statistics, too
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "model.keras"))
        loaded = hvd_keras.load_model(os.path.join(folder, "model.keras"))
    assert isinstance(loaded.layers[1], hvd.SyncBatchNormalization)
    expect_close(loaded.predict(own_data()[0], verbose=0), model.predict(own_data()[0], verbose=0))
    expect_error(ValueError, "fused", lambda: hvd.SyncBatchNormalization(fused=True))


def case_values():
    expect(hvd_keras.allreduce(hvd.rank(), op=hvd_keras.Sum), sum(range(hvd.size())))
    expect(hvd_keras.allgather([hvd.rank()]), list(range(hvd.size())))
    expect(hvd_keras.broadcast(float(hvd.rank()), 0), 0.0)


def case_the_front_end_of_keras_3():
    if not IS_KERAS_3:
        return
    import keras
    import rueda.keras as hvd_keras_3

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(hvd_keras_3.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    callbacks = [hvd_keras_3.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras_3.callbacks.MetricAverageCallback()]
    model.fit(*own_data(), epochs=2, verbose=0, callbacks=callbacks)
    equal_on_all_ranks(model.get_weights())
