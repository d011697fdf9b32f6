"""Runs a program that knows nothing of Rueda, as a rank of jax.distributed, with JAX's collectives over whatever the environment says:
jax_mpi_rank.py PART.

Parts: `collectives` compares each collective of JAX with NumPy, over all ranks; `mesh` has four ranks in two rows and two columns, and
in other orders; `pool` has many collectives in one program; `repeat` runs a reduce-scatter 150 times, and counts wrong results; `killed` has
rank 1 kill itself, and the others say what they have caught; `steps` has two sums in a step, which depend on nothing."""

import os
import signal
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:
    from jax.experimental.shard_map import shard_map

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", SIZE, RANK)
assert (jax.process_index(), jax.device_count(), jax.local_device_count()) == (RANK, SIZE, 1)
DTYPES = (np.float32, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.complex64)


def mesh_of(order=None, shape=None, names=("x",)):
    """Returns a mesh of all ranks' devices, by default in their order."""
    devices = np.array(sorted(jax.devices(), key=lambda device: device.process_index))
    return Mesh(devices[list(order or range(SIZE))].reshape(shape or (SIZE,)), names)


def values_of(shape, dtype):
    """Returns small whole numbers, of which sums and products of all ranks are exact in every dtype."""
    return (np.arange(np.prod(shape)) * 7 % 4 + 1).reshape(shape).astype(dtype)


def run(function, mesh, whole, into, out):
    """Returns this rank's part of what a function of the parts of an array gives, where all ranks have the array."""
    sharding = NamedSharding(mesh, into)
    array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    result = jax.jit(shard_map(function, mesh=mesh, in_specs=into, out_specs=out))(array)
    return np.asarray(result.addressable_shards[0].data)


def same(result, expected):
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)


def collectives():
    mesh = mesh_of()
    for dtype in DTYPES:
        whole = values_of((SIZE, 2 * SIZE, 3), dtype)
        total = whole.sum(0, dtype=dtype)
        same(run(lambda x: jax.lax.psum(x, "x"), mesh, whole, P("x"), P()), total[None])
        same(run(lambda x: jax.lax.psum_scatter(x[0], "x", tiled=True), mesh, whole, P("x"), P("x")), total[2 * RANK:2 * RANK + 2])
        same(run(lambda x: jax.lax.all_gather(x, "x", axis=0, tiled=True), mesh, whole, P("x"), P(None, "x")), whole)
        if dtype != np.complex64:
            same(run(lambda x: jax.lax.pmax(x, "x"), mesh, whole, P("x"), P()), whole.max(0)[None])
            same(run(lambda x: jax.lax.pmin(x, "x"), mesh, whole, P("x"), P()), whole.min(0)[None])
        parts = run(lambda x: jax.lax.all_to_all(x[0], "x", 0, 0, tiled=True), mesh, whole, P("x"), P("x"))
        same(parts, np.concatenate([whole[rank, 2 * RANK:2 * RANK + 2] for rank in range(SIZE)]))
        ring = [(rank, (rank + 1) % SIZE) for rank in range(SIZE)]
        same(run(lambda x: jax.lax.ppermute(x, "x", ring), mesh, whole, P("x"), P("x")), whole[(RANK - 1) % SIZE][None])
    # A rank that nobody sends to has zeros.
    whole = values_of((SIZE, 5), np.float32)
    same(run(lambda x: jax.lax.ppermute(x, "x", [(0, SIZE - 1)]), mesh, whole, P("x"), P("x")),
         whole[0][None] if RANK == SIZE - 1 else np.zeros((1, 5), np.float32))
    explicit(mesh)


def explicit(mesh):
    """Shardings that the program states, from which XLA finds the collectives."""
    whole = values_of((4 * SIZE, 8), np.float32)
    array = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])
    product = jax.jit(lambda x: (x.T @ x, x.sum(), jnp.sort(x, axis=0)), out_shardings=NamedSharding(mesh, P()))(array)
    for result, expected in zip(product, (whole.T @ whole, whole.sum(), np.sort(whole, axis=0))):
        same(np.asarray(result.addressable_shards[0].data), expected)
    turned = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P(None, "x")) if 8 % SIZE == 0 else None)(array)
    same(np.asarray(turned.addressable_shards[0].data), 2 * (whole[:, 8 // SIZE * RANK:8 // SIZE * (RANK + 1)] if 8 % SIZE == 0
                                                             else whole[4 * RANK:4 * RANK + 4]))


def mesh():
    for order in ((0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)):
        grid = mesh_of(order, (2, 2), ("row", "column"))
        place = order.index(RANK)
        row, column = divmod(place, 2)
        whole = values_of((2, 2, 2, 6), np.float32)
        mine = whole[row, column]
        both = P("row", "column")
        for axis, of_axis in (("row", whole[:, column]), ("column", whole[row])):
            at = row if axis == "row" else column
            same(run(lambda x: jax.lax.psum(x, axis), grid, whole, both, both)[0, 0], of_axis.sum(0))
            same(run(lambda x: jax.lax.all_gather(x[0, 0], axis)[None, None], grid, whole, both, both)[0, 0], of_axis)
            same(run(lambda x: jax.lax.psum_scatter(x[0, 0], axis, tiled=True)[None, None], grid, whole, both, both)[0, 0],
                 of_axis.sum(0)[at:at + 1])
            same(run(lambda x: jax.lax.ppermute(x, axis, [(0, 1), (1, 0)]), grid, whole, both, both)[0, 0], of_axis[1 - at])
        same(run(lambda x: jax.lax.psum(x, ("row", "column")), grid, whole, both, both)[0, 0], whole.sum((0, 1)))
        same(run(lambda x: jax.lax.all_gather(x[0, 0], ("row", "column"))[None, None], grid, whole, both, both)[0, 0],
             whole.reshape(4, 2, 6))
        assert mine.shape == (2, 6)


def pool():
    """64 sums by turns along rows and columns, of results of products, in one program: XLA's pool runs them."""
    grid = mesh_of(None, (2, SIZE // 2), ("row", "column"))

    def many(x):
        results = []
        for number in range(64):
            y = jnp.sin(x[0, 0] * (number + 1))
            results.append(jax.lax.psum(y @ y.T, "row" if number % 2 else "column").sum())
        return jnp.stack(results)[None, None]

    whole = np.random.default_rng(0).normal(size=(2, SIZE // 2, 200, 200)).astype(np.float32)
    row, column = divmod(RANK, SIZE // 2)
    for _ in range(3):
        result = run(many, grid, whole, P("row", "column"), P("row", "column"))[0, 0]
        for number in (0, 1, 62, 63):
            y = np.sin(whole * np.float32(number + 1)).astype(np.float64)
            squares = (y @ y.swapaxes(-1, -2)).sum((-1, -2))
            expected = squares[:, column].sum() if number % 2 else squares[row].sum()
            np.testing.assert_allclose(result[number], expected, rtol=1e-2, atol=1.0)


def repeat():
    """The program of which Gloo made wrong sums, without an error (jax-ml/jax#40830): groups of two, and 4 MiB of float64 for each rank of
    the result of a reduce-scatter, again and again. Gloo's was rank 0's part that was wrong, from somewhere to its end."""
    jax.config.update("jax_enable_x64", True)
    grid = mesh_of(None, (SIZE // 2, 2), ("group", "x"))
    groups = NamedSharding(grid, P("group", "x"))
    scatter = jax.jit(shard_map(lambda x: jax.lax.psum_scatter(x[0, 0], "x", tiled=True)[None, None], mesh=grid, in_specs=P("group", "x"),
                                out_specs=P("group", "x")))
    group, place = divmod(RANK, 2)
    values = np.arange(2 << 19, dtype=np.float64) % 1013
    begin = place << 19
    wrong = 0
    for number in range(150):
        mine = jax.device_put((values * (RANK + 1) + number)[None, None])
        array = jax.make_array_from_single_device_arrays((SIZE // 2, 2, 2 << 19), groups, [mine])
        part = np.asarray(scatter(array).addressable_shards[0].data)[0, 0]
        expected = values[begin:begin + (1 << 19)] * (4 * group + 3) + 2 * number
        wrong += not np.array_equal(part, expected)
    print(f"wrong {wrong} of 150", flush=True)


def killed():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the job; first we want to have our say
    mesh = mesh_of()
    whole = values_of((SIZE, 1000), np.float32)
    began = 0.0
    try:
        for number in range(10):
            began = time.monotonic()
            if number == 5 and RANK == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            run(lambda x: jax.lax.psum(x, "x"), mesh, whole, P("x"), P())
    except Exception as error:  # what JAX raises has changed its class and its name
        print(f"caught after {time.monotonic() - began:.1f} s: {error}", flush=True)
    sys.stdout.flush()
    os._exit(1)  # jax.distributed would wait for the dead


def steps():
    mesh = mesh_of()

    def step(x, y):
        return jax.lax.psum(jnp.sin(x) * 0 + x, "x"), jax.lax.psum(y, "x")

    compiled = jax.jit(shard_map(step, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=(P(), P())))
    first, second = values_of((SIZE, 300), np.float32), values_of((SIZE, 20_000), np.float32) + 1
    sharding = NamedSharding(mesh, P("x"))
    arrays = [jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index]) for whole in (first, second)]  # noqa: B023
    for number in range(int(os.environ.get("RUEDA_JAX_STEPS", "1000"))):
        results = compiled(*arrays)
        if number % 50 == 0:
            same(np.asarray(results[0].addressable_shards[0].data), first.sum(0)[None])
            same(np.asarray(results[1].addressable_shards[0].data), second.sum(0)[None])
    jax.block_until_ready(results)


def main():
    {one.__name__: one for one in (collectives, mesh, pool, repeat, killed, steps)}[sys.argv[1]]()
    jax.distributed.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
