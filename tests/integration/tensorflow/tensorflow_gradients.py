"""Holds cases of tensorflow_rank.py: gradients of each collective, and tapes whose gradients are reduced."""

import numpy as np
import rueda.tensorflow as hvd
import tensorflow as tf
from tensorflow_expect import expect, expect_close, expect_error


def in_both_ways(function):
    """Yields a function as it is, and as a graph."""
    yield function
    yield tf.function(function)


def gradient_of(loss, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    return tape.gradient(value, x)


def case_gradients_of_collectives():
    rank, size = hvd.rank(), hvd.size()
    weight = rank + 1.0
    weights = sum(one + 1.0 for one in range(size))
    x = tf.fill([2 * size, 3], float(rank))
    rows = [len(part) for part in np.array_split(np.arange(2 * size), size)]
    cases = {
        "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), np.full(x.shape, weights)),
        "average": (lambda x: hvd.allreduce(x), np.full(x.shape, weights / size)),
        "scaled": (lambda x: hvd.allreduce(x, prescale_factor=0.5, postscale_factor=4.0), np.full(x.shape, 2 * weights / size)),
        "group": (lambda x: hvd.grouped_allreduce([x, 2 * x])[1], np.full(x.shape, 2 * weights / size)),
        "allgather": (hvd.allgather, np.full(x.shape, weights / size)),
        "broadcast": (lambda x: hvd.broadcast(x, 0), np.full(x.shape, weights / size if rank == 0 else 0.0)),
        "alltoall": (lambda x: hvd.alltoall(x), np.repeat(np.arange(1.0, size + 1), 2)[:, None] * np.ones(3)),
        "some rows": (lambda x: hvd.alltoall(x, splits=[1] * size)[0],
                      np.concatenate([np.arange(1.0, size + 1), np.zeros(size)])[:, None] * np.ones(3)),
        "reducescatter": (lambda x: hvd.reducescatter(x, op=hvd.Sum), size * np.repeat(np.arange(1.0, size + 1), rows)[:, None] * np.ones(3)),
        "part of the average": (lambda x: hvd.reducescatter(x), np.repeat(np.arange(1.0, size + 1), rows)[:, None] * np.ones(3)),
    }
    for name, (collective, wanted) in cases.items():
        for run in in_both_ways(lambda x, c=collective: gradient_of(lambda y: tf.reduce_sum(c(y)) * weight, x)):
            expect_close(run(x), wanted, f"gradient of {name}:")
    expect_error(NotImplementedError, "only Sum and Average",
                 lambda: gradient_of(lambda x: tf.reduce_sum(hvd.allreduce(x, op=hvd.Max)), x))


def case_second_derivatives():
    x = tf.constant([2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        first = gradient_of(lambda y: tf.reduce_sum(hvd.allreduce(y ** 3)), x)
    expect_close(outer.gradient(first, x), [12.0])


def case_a_tape_reduces_gradients():
    rank, size = hvd.rank(), hvd.size()
    a, b, unused = tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable(1.0)

    def step(**arguments):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(a * (rank + 1.0)) + b * float(rank)
        return hvd.DistributedGradientTape(tape, **arguments).gradient(loss, [a, {"b": b}, unused])

    mean = (size + 1) / 2
    for arguments in ({}, {"num_groups": 1}, {"groups": 2}, {"groups": [[a, b]]}, {"gradient_predivide_factor": 2.0},
                      {"compression": hvd.Compression.fp16}):
        for run in in_both_ways(lambda given=arguments: step(**given)):
            found = run()
            expect_close(found[0], [mean, mean], str(arguments))
            expect_close(found[1]["b"], (size - 1) / 2)
            assert found[2] is None
    expect_close(step(op=hvd.Sum)[0], [mean * size] * 2)
    expect_error(ValueError, "must be Average", lambda: step(op=hvd.Sum, gradient_predivide_factor=2.0))
    expect_error(ValueError, "lists of variables", lambda: step(groups=[a]))


def case_a_tape_may_be_wrapped_before_it_records():
    x = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = x * float(hvd.rank())
    for _ in range(2):
        expect_close(tape.gradient(loss, x), (hvd.size() - 1) / 2)


def case_sources_that_stay_local():
    rank, size = hvd.rank(), hvd.size()
    x, y = tf.Variable(1.0), tf.Variable(1.0)
    for scales, wanted in ((True, rank / size), (False, float(rank))):
        with tf.GradientTape() as tape:
            loss = (x + y) * float(rank)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scales)
        tape.register_local_source(x)
        mine, all_of_us = tape.gradient(loss, [x, y])
        expect_close(mine, wanted)
        expect_close(all_of_us, (size - 1) / 2)


def case_embeddings():
    table = tf.Variable(tf.zeros([5, 2]))
    for as_dense in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [0, hvd.rank() + 1]))
        gradient = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense, op=hvd.Sum).gradient(loss, table)
        wanted = np.zeros((5, 2))
        wanted[0] = hvd.size()
        wanted[1:hvd.size() + 1] = 1
        assert isinstance(gradient, tf.IndexedSlices) != as_dense
        expect(tf.convert_to_tensor(gradient), wanted)
