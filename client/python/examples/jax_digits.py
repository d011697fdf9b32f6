#!/usr/bin/python3
"""Trains a classifier of handwritten digits in JAX, data-parallel with Rueda: the step is compiled, and the average over the ranks is
a part of it.

    ruedarun -np 4 python3 jax_digits.py

It needs JAX and scikit-learn, and librueda_jax.so (docs/jax.md). The program fails (exit code 1) when the accuracy is not above 0.95,
or when the ranks' weights differ in a single bit."""

import argparse
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import rueda.jax as hvd  # noqa: E402

LAYERS = (64, 96, 48, 10)
BATCH = 64  # over all ranks
LEARNING_RATE = 0.1
MOMENTUM = 0.9
REQUIRED_ACCURACY = 0.95


def load_data():
    """Returns ((train x, train y), (test x, test y)): images of 8 by 8 pixels from 0 to 1."""
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    x, y = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    split = len(y) * 8 // 10
    return (x[:split], y[:split]), (x[split:], y[split:])


def new_parameters(key):
    """Returns a list of (weight, bias), one for each layer."""
    keys = jax.random.split(key, len(LAYERS) - 1)
    return [(jax.random.normal(one, (inputs, outputs)) * jnp.sqrt(2 / inputs), jnp.zeros(outputs))
            for one, inputs, outputs in zip(keys, LAYERS, LAYERS[1:])]


def scores_of(parameters, x):
    for weight, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    return x @ weight + bias


def loss_of(parameters, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores_of(parameters, x)), y[:, None], axis=1).mean()


@jax.jit
def step(parameters, velocities, x, y):
    """Returns new parameters and velocities, and the loss, all of them the same on every rank."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
    gradients, loss = hvd.average_gradients((gradients, loss))
    velocities = jax.tree_util.tree_map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
    parameters = jax.tree_util.tree_map(lambda p, v: p - LEARNING_RATE * v, parameters, velocities)
    return parameters, velocities, loss


@jax.jit
def accuracy_of(parameters, x, y):
    return (scores_of(parameters, x).argmax(axis=1) == y).mean()


def have_same_weights(parameters):
    """Returns whether all ranks have the same weights, bit for bit."""
    flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree_util.tree_leaves(parameters)])
    bits = jax.lax.bitcast_convert_type(flat, jnp.int32)
    return bool((hvd.allreduce(bits, hvd.Min) == hvd.allreduce(bits, hvd.Max)).all())


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits in JAX, data-parallel with Rueda.")
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    hvd.init()
    (x, y), (test_x, test_y) = load_data()
    # Every rank begins with other weights; the broadcast makes them equal.
    parameters = hvd.broadcast_parameters(new_parameters(jax.random.key(hvd.rank())))
    velocities = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    share = BATCH // hvd.size()
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(y))
        for begin in range(0, len(y) - BATCH + 1, BATCH):
            mine = order[begin + hvd.rank() * share:begin + (hvd.rank() + 1) * share]
            parameters, velocities, loss = step(parameters, velocities, x[mine], y[mine])
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2d}: loss {loss:.4f}, test accuracy {accuracy_of(parameters, test_x, test_y):.4f}", flush=True)
    accuracy = float(accuracy_of(parameters, test_x, test_y))
    is_right = accuracy > REQUIRED_ACCURACY and have_same_weights(parameters)
    print(f"rank {hvd.rank()} of {hvd.size()}: test accuracy {accuracy:.4f}{'' if is_right else ', FAILED'}", flush=True)
    hvd.shutdown()
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
