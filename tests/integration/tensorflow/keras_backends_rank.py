"""A rank of a job that trains by rueda.keras, on whatever backend KERAS_BACKEND names: keras_backends_rank.py. It says "ok" at the
end, and prints a digest of what was learned."""

import os
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import rueda  # noqa: E402
import rueda.keras as hvd  # noqa: E402

BACKEND = keras.backend.backend()


def gathered(values):
    """Returns all ranks' values, one row a rank."""
    flat = np.concatenate([np.asarray(value, np.float64).ravel() for value in values])
    return hvd.allgather(flat[None, :])


def expect_equal_on_all_ranks(values):
    rows = gathered(values)
    assert np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)), rows


def data_of(rank):
    rng = np.random.default_rng(rank)
    return rng.normal(size=(16, 3)).astype(np.float32), rng.normal(size=(16, 2)).astype(np.float32)


def make_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="relu"), keras.layers.Dense(2)])
    model.set_weights([np.random.default_rng(9).normal(size=weight.shape).astype(np.float32) for weight in model.get_weights()])
    return model


def weights_of(model):
    return [np.asarray(weight) for weight in model.get_weights()]


def check_training():
    """Checks that a job learns what one process with all data does. Returns the weights."""
    for arguments in ({}, {"num_groups": 2}, {"compression": hvd.Compression.none, "gradient_predivide_factor": 2.0}):
        alone, together = make_model(), make_model()
        parts = [data_of(rank) for rank in range(hvd.size())]
        alone.compile(keras.optimizers.Adam(0.05), "mse")
        alone.fit(*(np.concatenate(part) for part in zip(*parts)), batch_size=16 * hvd.size(), epochs=5, shuffle=False, verbose=0)
        together.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), **arguments), "mse")
        together.fit(*data_of(hvd.rank()), batch_size=16, epochs=5, shuffle=False, verbose=0)
        for mine, theirs in zip(weights_of(together), weights_of(alone)):
            assert np.allclose(mine, theirs, rtol=1e-3, atol=1e-4), (mine, theirs)
        expect_equal_on_all_ranks(weights_of(together))
    return weights_of(together)


def check_beginning_and_metrics():
    keras.utils.set_random_seed(hvd.rank())
    layers = keras.layers
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dropout(0.5), layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), compression=hvd.Compression.fp16), "mse")
    history = model.fit(*data_of(hvd.rank()), batch_size=4, epochs=3, verbose=0, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=2)])
    expect_equal_on_all_ranks([*weights_of(model), history.history["loss"]])
    assert abs(history.history["lr"][-1] - 0.02) < 1e-6, history.history
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "model.keras"))
        loaded = hvd.load_model(os.path.join(folder, "model.keras"))
    loaded.fit(*data_of(hvd.rank()), batch_size=4, verbose=0)
    expect_equal_on_all_ranks(weights_of(loaded))


def check_infinities():
    """Checks that an infinity on one rank has all ranks skip the step."""
    keras.config.set_dtype_policy("mixed_float16")
    model = make_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = data_of(hvd.rank())
    model.fit(x, y, batch_size=16, verbose=0)
    before = weights_of(model)
    scale = float(np.asarray(model.optimizer.dynamic_scale))
    model.fit(x, np.full_like(y, np.inf) if hvd.rank() == 0 else y, batch_size=16, verbose=0)
    assert all(np.array_equal(*pair) for pair in zip(before, weights_of(model)))
    assert float(np.asarray(model.optimizer.dynamic_scale)) == scale / 2
    model.fit(x, y, batch_size=16, verbose=0)
    expect_equal_on_all_ranks(weights_of(model))
    assert not np.array_equal(before[0], weights_of(model)[0])
    keras.config.set_dtype_policy("float32")


def check_values_and_local_layers():
    assert hvd.allreduce(hvd.rank() + 1.0, op=hvd.Sum) == sum(range(1, hvd.size() + 1))
    assert hvd.broadcast(np.full(2, hvd.rank()), 1).tolist() == [1, 1]
    model = make_model()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[0])
    model.compile(optimizer, "mse")
    model.fit(*data_of(hvd.rank()), verbose=0)
    rows = gathered([weights_of(model)[0]])
    assert not np.array_equal(rows[0], rows[1])


def check_that_a_failed_step_is_repeated():
    """Checks that hvd.elastic.run goes back to the last commit, also where variables are JAX's."""
    results = []
    for fails in (False, True):
        model = make_model()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
        state = hvd.elastic.KerasState(model, epoch=0, batch=0)
        left = [1] if fails and hvd.rank() == 1 else []

        class Failing(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if state.epoch == 2 and batch == 1 and left:
                    left.pop()
                    raise hvd.elastic.HorovodInternalError("made by the test")

        @hvd.elastic.run
        def train(state):
            model.fit(*data_of(hvd.rank()), batch_size=4, epochs=4, initial_epoch=state.epoch, shuffle=False, verbose=0, callbacks=[
                Failing(), hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 100)])

        train(state)
        assert state.epoch == 4
        results.append(weights_of(model))
    assert all(np.array_equal(*pair) for pair in zip(*results)), results


def check_a_backend_that_changes():
    before = os.environ.get("KERAS_BACKEND")
    other = "torch" if BACKEND != "torch" else "jax"
    os.environ["KERAS_BACKEND"] = other
    try:
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        raise AssertionError("a changed backend was not noticed")
    except RuntimeError as error:
        assert f"set KERAS_BACKEND={other} before the first import" in str(error), error
    finally:
        os.environ.pop("KERAS_BACKEND")
        os.environ.update({} if before is None else {"KERAS_BACKEND": before})


def main():
    hvd.init()
    learned = check_training()
    for check in (check_beginning_and_metrics, check_infinities, check_values_and_local_layers, check_that_a_failed_step_is_repeated,
                  check_a_backend_that_changes):
        if len(sys.argv) < 2 or check.__name__ in sys.argv[1:]:
            try:
                check()
            except BaseException:
                print(f"FAILED {check.__name__} on rank {rueda.rank() if rueda.is_initialized() else '?'}", flush=True)
                raise
    hvd.shutdown()
    print("learned", " ".join(f"{value:.3f}" for weight in learned for value in weight.ravel()), flush=True)
    print("ok", flush=True)


if __name__ == "__main__":
    main()
