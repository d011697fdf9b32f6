"""Says what jax.distributed.initialize() has found out without arguments."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

import rueda.jax as hvd  # noqa: E402


def main():
    jax.distributed.initialize()
    print(f"JAX: process {jax.process_index()} of {jax.process_count()}, {jax.local_device_count()} of {jax.device_count()} devices",
          flush=True)
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (jax.process_index(), jax.process_count())
    total = jax.jit(lambda x: hvd.allreduce(x, hvd.Sum))(jax.numpy.ones(3))
    assert (total == hvd.size()).all(), total
    hvd.shutdown()
    jax.distributed.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
