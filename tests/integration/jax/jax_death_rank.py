"""Ranks of which one ends while the others wait for it, and say what they have caught: jax_death_rank.py killed|unequal|leaves|leaves-early.
`killed`: rank 1 kills itself in the sixth step. `unequal`: rank 1 has another shape in one of ten collectives of a program, and nobody
catches the error. `leaves`: rank 1 ends well while it has a collective under way. `leaves-early`: before its program has come to that."""

import os
import signal
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import rueda.jax as hvd  # noqa: E402

VICTIM = 1


@jax.jit
def step(x):
    tree = hvd.average_gradients([x, x[0]])
    return jnp.sin(tree[0]) + hvd.allreduce(x * 2, hvd.Sum) + tree[1]


def train_until_a_death():
    x = jnp.ones((100, 100))
    try:
        for i in range(10):
            if i == 5 and hvd.rank() == VICTIM:
                os.kill(os.getpid(), signal.SIGKILL)
            with hvd.rueda_errors():
                x = jax.block_until_ready(step(x))
    except hvd.RuedaInternalError as error:
        print(f"caught {error.code} in a program: {error}", flush=True)
    try:
        hvd.allreduce(x)
    except hvd.RuedaInternalError as error:
        print(f"caught {error.code} eagerly: {error}", flush=True)
    try:
        with hvd.rueda_errors():
            jax.block_until_ready(step(x))
    except hvd.RuedaInternalError as error:
        print(f"caught {error.code} again: {error}", flush=True)


def disagree():
    def ten(x):
        return [hvd.allreduce(jnp.sin((x[:-1] if i == 4 and hvd.rank() == VICTIM else x) + i), name=f"tensor {i}") for i in range(10)]

    jax.block_until_ready(jax.jit(ten)(jnp.ones(100_000)))


def leave_with_a_collective_under_way(products=0):
    x = jnp.ones((500, 500))
    if hvd.rank() == VICTIM:
        def program(x):
            x = jax.lax.fori_loop(0, products, lambda _, y: jnp.sin(y @ y), x)  # some 10 ms each
            return hvd.allreduce(x, name="only the victim has it") + 1

        jax.jit(program)(x)
        print("leaving", flush=True)
        return
    try:
        hvd.allreduce(x, name="the victim lacks it")
    except hvd.RuedaInternalError as error:
        print(f"caught {error.code} eagerly: {error}", flush=True)


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the job; first we want to have our say
    hvd.init()
    {"killed": train_until_a_death, "unequal": disagree, "leaves": leave_with_a_collective_under_way,
     "leaves-early": lambda: leave_with_a_collective_under_way(100)}[sys.argv[1]]()


if __name__ == "__main__":
    main()
