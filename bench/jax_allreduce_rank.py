"""A rank of bench/jax_allreduce.py: jax_allreduce_rank.py rueda|rueda-eager|mpi|gloo BYTES STEPS. Prints what an all-reduce has taken, on
average, as JSON; fails if a result is wrong."""

import json
import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import rueda.jax as hvd  # noqa: E402

WARMUP = 3


def over_rueda(count, is_eager):
    """Returns a function that reduces an array of ones, and one that waits for all ranks."""
    def reduce_(x):
        return hvd.allreduce(x, hvd.Sum)

    x = jnp.ones((count,), jnp.float32)
    step = reduce_ if is_eager else jax.jit(reduce_)
    return lambda: step(x), hvd.barrier


def by_psum(count):
    """Returns the same, by psum between the processes, over Gloo or librueda_mpi."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("ranks")), np.ones((1, count), np.float32))
    reduce_ = jax.jit(shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=PartitionSpec("ranks"),
                                out_specs=PartitionSpec()))
    return lambda: reduce_(x), hvd.barrier


def main():
    way, count, steps = sys.argv[1], int(sys.argv[2]) // 4, int(sys.argv[3])
    has_psum = way in ("gloo", "mpi")
    if has_psum:
        jax.config.update("jax_cpu_collectives_implementation", way)
        jax.distributed.initialize()
    hvd.init()
    step, barrier = by_psum(count) if has_psum else over_rueda(count, way == "rueda-eager")
    for _ in range(WARMUP):
        result = jax.block_until_ready(step())
    barrier()
    begin_s = time.perf_counter()
    for _ in range(steps):
        result = jax.block_until_ready(step())
    seconds = (time.perf_counter() - begin_s) / steps
    barrier()
    values = np.asarray(result.addressable_shards[0].data)
    if not (values == hvd.size()).all():
        sys.exit(f"{way}: a result is {values.ravel()[0]}, not {hvd.size()}")
    print(json.dumps({"seconds": seconds}), flush=True)
    hvd.shutdown()
    if has_psum:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
