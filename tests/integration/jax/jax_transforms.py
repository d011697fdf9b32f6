"""Cases in which collectives are differentiated and mapped over batches, and must equal one process that has the arrays of all
ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import rueda.jax as hvd

ROWS = 3  # of each rank's part


def array_of(rank, shape):
    return jnp.asarray(np.random.default_rng(rank).normal(size=shape))


def on_one(kind, xs):
    """Returns what each rank would get, as one process computes it from the arrays of all."""
    size = len(xs)
    if kind == "sum":
        return [sum(xs)] * size
    if kind == "average":
        return [sum(xs) / size] * size
    if kind == "scaled":
        return [sum(xs) * 6.0] * size
    if kind == "broadcast":
        return [xs[size - 1]] * size
    if kind == "allgather":
        return [jnp.concatenate(xs)] * size
    if kind == "reducescatter":
        return list(jnp.split(sum(xs), size))
    if kind == "uneven reducescatter":
        return list(jnp.array_split(sum(xs) * 0.5 / size, size))
    if kind == "alltoall":
        return [jnp.concatenate([jnp.split(x, size)[rank] for x in xs]) for rank in range(size)]
    counts = splits_of(size)
    ends = np.cumsum(counts, axis=1)
    return [jnp.concatenate([xs[i][ends[i][rank] - counts[i][rank]:ends[i][rank]] for i in range(size)]) for rank in range(size)]


def splits_of(size):
    """Returns how many rows each rank gives to each: they add up to ROWS * size."""
    return [[ROWS + (1 if i == j else 0) - (1 if j == (i + 1) % size else 0) for j in range(size)] for i in range(size)]


KINDS = {
    "sum": functools.partial(hvd.allreduce, op=hvd.Sum),
    "average": hvd.allreduce,
    "scaled": functools.partial(hvd.allreduce, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0),
    "broadcast": lambda x: hvd.broadcast(x, hvd.size() - 1),
    "allgather": hvd.allgather,
    "reducescatter": functools.partial(hvd.reducescatter, op=hvd.Sum),
    "uneven reducescatter": functools.partial(hvd.reducescatter, postscale_factor=0.5),
    "alltoall": hvd.alltoall,
    "alltoall by splits": lambda x: hvd.alltoall(x, splits_of(hvd.size())),
}


def shape_of(kind):
    return (ROWS * hvd.size() + (1 if kind.startswith("uneven") else 0), 2)


def loss_of(result, rank):
    """Returns a rank's loss: not the same function of the result on all ranks, and not a linear one."""
    weights = jnp.arange(1.0, 1.0 + result.size).reshape(result.shape) * (rank + 1)
    return (weights * jnp.sin(result)).sum()


def total_loss(kind, xs):
    return sum(loss_of(result, rank) for rank, result in enumerate(on_one(kind, xs)))


def close(result, expected):
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-9, atol=1e-9)


def case_results_and_gradients_equal_one_process():
    rank = hvd.rank()
    for kind, function in KINDS.items():
        xs = [array_of(other, shape_of(kind)) for other in range(hvd.size())]
        expected = jax.grad(functools.partial(total_loss, kind))(xs)[rank]
        gradient = jax.grad(lambda x: loss_of(function(x), rank))
        for way in (gradient, jax.jit(gradient)):
            close(way(xs[rank]), expected)
        close(jax.jit(function)(xs[rank]), on_one(kind, xs)[rank])


def case_tangents_equal_one_process():
    rank = hvd.rank()
    for kind, function in KINDS.items():
        xs = [array_of(other, shape_of(kind)) for other in range(hvd.size())]
        tangents = [array_of(100 + other, shape_of(kind)) for other in range(hvd.size())]
        results, moved = jax.jvp(lambda *all_: on_one(kind, list(all_)), tuple(xs), tuple(tangents))
        for way in (lambda f: f, jax.jit):
            one = way(lambda x, t: jax.jvp(function, (x,), (t,)))(xs[rank], tangents[rank])
            close(one[0], results[rank])
            close(one[1], moved[rank])
        # The transpose of the transpose is the function.
        back = jax.linear_transpose(function, xs[rank])
        forth = jax.linear_transpose(lambda y: back(y)[0], results[rank])
        close(jax.jit(lambda x: forth(x)[0])(xs[rank]), results[rank])


def case_second_derivatives_equal_one_process():
    rank = hvd.rank()

    def curvature(gradient_of, x, direction):
        return jax.jvp(gradient_of, (x,), (direction,))[1]

    for kind in ("sum", "allgather"):
        function = KINDS[kind]
        xs = [array_of(other, shape_of(kind)) for other in range(hvd.size())]
        directions = [array_of(50 + other, shape_of(kind)) for other in range(hvd.size())]
        expected = curvature(jax.grad(functools.partial(total_loss, kind)), xs, directions)[rank]
        gradient = jax.grad(lambda x: loss_of(function(x), rank))
        close(jax.jit(functools.partial(curvature, gradient))(xs[rank], directions[rank]), expected)


def case_batches_equal_one_process():
    rank, batch = hvd.rank(), 4
    for kind, function in KINDS.items():
        batches = [array_of(other, (batch, *shape_of(kind))) for other in range(hvd.size())]
        expected = jnp.stack([on_one(kind, [one[i] for one in batches])[rank] for i in range(batch)])
        mapped = jax.vmap(function)
        for way in (mapped, jax.jit(mapped)):
            close(way(batches[rank]), expected)
        for axis in (1, 2):
            moved = jnp.moveaxis(batches[rank], 0, axis)
            close(jax.jit(jax.vmap(function, in_axes=axis))(moved), expected)
        twice = jax.vmap(jax.vmap(function))(batches[rank].reshape(2, 2, *shape_of(kind)))
        close(twice.reshape(expected.shape), expected)
        gradients = jnp.stack([jax.grad(functools.partial(total_loss, kind))([one[i] for one in batches])[rank] for i in range(batch)])
        close(jax.jit(jax.vmap(jax.grad(lambda x: loss_of(function(x), rank))))(batches[rank]), gradients)


def case_a_group_of_which_only_some_are_differentiated_and_mapped():
    rank = hvd.rank()
    xs = [array_of(other, (4, 3)) for other in range(hvd.size())]
    y = jnp.arange(5.0)

    def loss(x, y):
        tree = hvd.average_gradients({"x": x, "y": y, "n": jnp.arange(3)}, hvd.Sum)
        return loss_of(tree["x"], rank) + tree["y"].sum() + tree["n"].sum()

    expected = jax.grad(functools.partial(total_loss, "sum"))(xs)[rank]
    for way in (lambda f: f, jax.jit):
        close(way(jax.grad(loss))(xs[rank], y), expected)
    mapped = jax.jit(jax.vmap(lambda x: hvd.average_gradients((x, y), hvd.Sum)))(xs[rank])
    close(mapped[0], sum(xs))
    close(mapped[1], jnp.broadcast_to(y * hvd.size(), (4, 5)))


def case_extremes_have_no_derivative():
    for op, name in ((hvd.Max, "Max"), (hvd.Min, "Min"), (hvd.Product, "Product")):
        try:
            jax.grad(lambda x: hvd.allreduce(x, op).sum())(jnp.ones(3))
            raise AssertionError("no error")
        except NotImplementedError as error:
            assert f"a reduction by {name} has no derivative in rueda.jax; use Sum or Average" in str(error), error
        close(jax.jit(jax.grad(lambda x: (x * hvd.allreduce(jax.lax.stop_gradient(x), op)).sum()))(jnp.ones(3)), np.ones(3))


def case_derivative_of_an_allgather_of_uneven_rows():
    rank, size = hvd.rank(), hvd.size()
    rows = [1 + other % 2 for other in range(size)]
    xs = [array_of(other, (rows[other], 2)) for other in range(size)]
    expected = jax.grad(functools.partial(total_loss, "allgather"))(xs)[rank]
    gradient = jax.grad(lambda x: loss_of(hvd.allgather(x, first_dims=rows), rank))
    for way in (gradient, jax.jit(gradient)):
        close(way(xs[rank]), expected)


def case_within_checkpoint_custom_derivatives_and_scan():
    rank = hvd.rank()
    xs = [array_of(other, (4, 3)) for other in range(hvd.size())]

    def layers(reduce_, x):
        block = jax.checkpoint(lambda x: jnp.sin(reduce_(jnp.cos(x))))
        return jax.lax.scan(lambda c, _: (block(c), None), x, None, length=3)[0]

    def on_all(xs):
        for _ in range(3):
            inner = on_one("average", [jnp.cos(x) for x in xs])
            xs = [jnp.sin(one) for one in inner]
        return sum(loss_of(x, other) for other, x in enumerate(xs))

    expected = jax.grad(on_all)(xs)[rank]
    close(jax.jit(jax.grad(lambda x: loss_of(layers(hvd.allreduce, x), rank)))(xs[rank]), expected)

    clipped = jax.custom_vjp(lambda x: hvd.allreduce(x))
    clipped.defvjp(lambda x: (hvd.allreduce(x), None), lambda _, cotangent: (jnp.clip(hvd.allreduce(cotangent), -1, 1),))
    raw = jax.grad(functools.partial(total_loss, "average"))(xs)[rank]
    close(jax.jit(jax.grad(lambda x: loss_of(clipped(x), rank)))(xs[rank]), jnp.clip(raw, -1, 1))


def case_a_training_step_equals_one_process():
    """Data-parallel gradient descent: each rank has its part of the batch, and the averaged gradient is that of the whole."""
    key = jax.random.key(0)
    weights = {"first": jax.random.normal(key, (6, 8)), "second": jax.random.normal(key, (8,))}
    data = array_of(7, (hvd.size() * 4, 6))
    goals = array_of(8, (hvd.size() * 4,))

    def loss(weights, x, y):
        return ((jnp.tanh(x @ weights["first"]) @ weights["second"] - y) ** 2).mean()

    @jax.jit
    def step(weights, x, y):
        gradients = hvd.average_gradients(jax.grad(loss)(weights, x, y))
        return jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, weights, gradients)

    mine = slice(hvd.rank() * 4, hvd.rank() * 4 + 4)
    together, alone = weights, weights
    for _ in range(10):
        together = step(together, data[mine], goals[mine])
        alone = jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, alone, jax.grad(loss)(alone, data, goals))
    for key_ in weights:
        close(together[key_], alone[key_])
