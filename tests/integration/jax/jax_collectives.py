"""Cases of each collective of rueda.jax, eager and compiled: results, names, copies, loops."""

import functools
import gc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import rueda
import rueda.jax as hvd

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int32, np.int64, np.int8, np.uint8)
REDUCTIONS = {hvd.Sum: lambda all_: all_.sum(0), hvd.Average: lambda all_: all_.sum(0) / len(all_), hvd.Min: lambda all_: all_.min(0),
              hvd.Max: lambda all_: all_.max(0), hvd.Product: lambda all_: all_.prod(0)}


def value_of(rank, shape=(5, 3), dtype=np.float32):
    """Returns what a rank contributes: small whole numbers, of which sums and products are exact in every dtype."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 + rank * 3) % 4 + 1).reshape(shape).astype(dtype)


def of_all(shape=(5, 3)):
    return np.stack([value_of(rank, shape, np.float64) for rank in range(hvd.size())])


def both_ways(function, *arguments):
    """Returns the results of a function that is called eagerly, and of one that is compiled."""
    return function(*arguments), jax.jit(function)(*arguments)


def same(result, expected, dtype=None):
    assert isinstance(result, jax.Array), type(result)
    if dtype is not None:
        assert result.dtype == dtype, (result.dtype, dtype)
    np.testing.assert_array_equal(np.asarray(result).astype(np.float64), np.asarray(expected).astype(result.dtype).astype(np.float64))


def near(result, expected):
    """Asserts the same but for rounding, as of averages of three that go on to be used."""
    np.testing.assert_allclose(np.asarray(result, np.float64), np.asarray(expected, np.float64), rtol=1e-5)


def raises(kind, text, function, *arguments):
    """Asserts that the function raises an exception of this kind, whose text has `text`."""
    try:
        jax.block_until_ready(function(*arguments))
    except kind as error:
        assert text in str(error), f"{error!r} does not say {text!r}"
        return error
    raise AssertionError(f"no {kind} with {text!r}")


def case_allreduce_by_each_operator_of_each_dtype():
    for dtype in (*FLOATS, *INTEGERS):
        for op, of in REDUCTIONS.items():
            expected = of(of_all())
            if op == hvd.Average and dtype in INTEGERS:
                expected = np.trunc(expected)
            elif op == hvd.Average:
                expected = expected.astype(dtype)
            for result in both_ways(functools.partial(hvd.allreduce, op=op), jnp.asarray(value_of(hvd.rank(), dtype=dtype))):
                same(result, expected, dtype)
    for result in both_ways(functools.partial(hvd.allreduce, op=hvd.Max), jnp.asarray([hvd.rank() == 0, False])):
        same(result, [True, False], np.bool_)


def case_shapes_from_no_dimension_to_ten():
    for shape in ((), (0,), (1,), (3, 0, 2), (2,) * 8, (2,) * 10):
        for result in both_ways(functools.partial(hvd.allreduce, op=hvd.Sum), jnp.asarray(value_of(hvd.rank(), shape))):
            same(result, of_all(shape).sum(0))
    for result in both_ways(hvd.allgather, jnp.asarray(value_of(hvd.rank(), (2,) * 10))):
        same(result, np.concatenate(of_all((2,) * 10)))


def case_scales_and_wire_dtype():
    for result in both_ways(lambda x: hvd.allreduce(x, hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, wire_dtype="bfloat16"),
                            jnp.asarray(value_of(hvd.rank()))):
        same(result, of_all().sum(0))


def case_adasum_of_equal_arrays():
    for result in both_ways(lambda x: hvd.allreduce(x, hvd.Adasum), jnp.asarray(value_of(0))):
        np.testing.assert_allclose(np.asarray(result), value_of(0), rtol=1e-6)


def case_groups_of_different_shapes_and_dtypes():
    xs = [jnp.asarray(value_of(hvd.rank(), shape, dtype)) for shape, dtype in (((3,), np.float32), ((2, 2), np.float64), ((), np.int32))]
    for results in both_ways(functools.partial(hvd.grouped_allreduce, op=hvd.Sum), xs):
        for x, result in zip(xs, results):
            same(result, of_all(x.shape).sum(0), x.dtype)


def case_broadcast_of_any_dtype():
    root = hvd.size() - 1
    for dtype in (*FLOATS, *INTEGERS, np.uint32, np.int16, np.uint64, np.complex64):
        for result in both_ways(lambda x: hvd.broadcast(x, root), jnp.asarray(value_of(hvd.rank(), dtype=dtype))):
            assert result.dtype == dtype
            np.testing.assert_array_equal(np.asarray(result), value_of(root, dtype=dtype))
    for result in both_ways(lambda x: hvd.broadcast(x, 0), jnp.asarray(hvd.rank() + 5, jnp.uint32)):
        same(result, 5)


def case_allgather():
    for dtype in (np.float32, ml_dtypes.bfloat16, np.uint16, np.complex128):
        for result in both_ways(hvd.allgather, jnp.asarray(value_of(hvd.rank(), dtype=dtype))):
            assert result.dtype == dtype
            np.testing.assert_array_equal(np.asarray(result), np.concatenate([value_of(rank, dtype=dtype) for rank in range(hvd.size())]))


def case_allgather_of_uneven_rows():
    rows = [(rank * 2) % 5 for rank in range(hvd.size())]
    expected = np.concatenate([value_of(rank, (count, 2)) for rank, count in enumerate(rows)])
    mine = jnp.asarray(value_of(hvd.rank(), (rows[hvd.rank()], 2)))
    same(hvd.allgather(mine), expected)  # the ranks tell each other
    for result in both_ways(functools.partial(hvd.allgather, first_dims=rows), mine):
        same(result, expected)


def case_reducescatter_of_even_and_uneven_rows():
    for rows in (2 * hvd.size(), 2 * hvd.size() + 1, 1):
        parts = np.array_split(of_all((rows, 3)).sum(0), hvd.size())
        for result in both_ways(functools.partial(hvd.reducescatter, op=hvd.Sum), jnp.asarray(value_of(hvd.rank(), (rows, 3)))):
            same(result, parts[hvd.rank()])
    for result in both_ways(hvd.reducescatter, jnp.asarray(value_of(hvd.rank(), (hvd.size(), 3)))):
        same(result, [of_all((hvd.size(), 3)).mean(0)[hvd.rank()].astype(np.float32)])


def case_alltoall():
    size, rank = hvd.size(), hvd.rank()
    for result in both_ways(hvd.alltoall, jnp.asarray(value_of(rank, (2 * size, 3)))):
        same(result, np.concatenate([value_of(other, (2 * size, 3))[2 * rank:2 * rank + 2] for other in range(size)]))
    splits = [[(i + 2 * j) % 3 for j in range(size)] for i in range(size)]
    whole = [value_of(other, (sum(splits[other]), 2), np.uint16) for other in range(size)]
    begins = [sum(splits[other][:rank]) for other in range(size)]
    expected = np.concatenate([whole[other][begins[other]:begins[other] + splits[other][rank]] for other in range(size)])
    for result in both_ways(functools.partial(hvd.alltoall, splits=splits), jnp.asarray(whole[rank])):
        same(result, expected, np.uint16)


def case_process_sets():
    odd = hvd.add_process_set(range(1, hvd.size(), 2)) if hvd.size() > 1 else None
    if odd is not None and odd.included():
        for result in both_ways(functools.partial(hvd.allreduce, op=hvd.Sum, process_set=odd), jnp.asarray(value_of(hvd.rank()))):
            same(result, of_all()[1::2].sum(0))
        for result in both_ways(functools.partial(hvd.allgather, process_set=odd), jnp.asarray(value_of(hvd.rank()))):
            same(result, np.concatenate(of_all()[1::2]))
    if odd is not None:
        hvd.remove_process_set(odd)


def case_average_gradients_of_a_tree():
    rank = hvd.rank()
    tree = {"layer": [jnp.asarray(value_of(rank)), None], "bias": jnp.asarray(value_of(rank, (2,), ml_dtypes.bfloat16)),
            "steps": np.zeros((2,), jax.dtypes.float0), "scale": float(rank)}
    compiled = jax.jit(lambda plain: hvd.average_gradients({**plain, "steps": tree["steps"]}))
    for result in (hvd.average_gradients(tree), compiled({key: value for key, value in tree.items() if key != "steps"})):
        same(result["layer"][0], of_all().mean(0))
        assert result["layer"][1] is None and result["steps"].dtype == jax.dtypes.float0
        same(result["bias"], of_all((2,)).mean(0).astype(ml_dtypes.bfloat16), ml_dtypes.bfloat16)
        same(result["scale"], (hvd.size() - 1) / 2)
    assert hvd.average_gradients({}) == {}


def case_broadcast_parameters_of_a_tree():
    tree = {"weights": jnp.asarray(value_of(hvd.rank())), "key": jax.random.key(hvd.rank()), "old key": jax.random.PRNGKey(hvd.rank()),
            "count": hvd.rank() + 3}
    root = hvd.size() - 1
    for result in both_ways(functools.partial(hvd.broadcast_parameters, root_rank=root), tree):
        same(result["weights"], value_of(root))
        same(jax.random.key_data(result["key"]), jax.random.key_data(jax.random.key(root)))
        same(result["old key"], jax.random.PRNGKey(root))
        same(result["count"], root + 3)


def names_in(function, *arguments):
    """Returns the names of collectives in a compiled program, in the order of its text."""
    text = jax.jit(function).lower(*arguments).as_text()
    return [part.split('"')[1] for part in text.split("name = ")[1:] if part.startswith('"')]


def case_names_come_from_the_place_in_the_program():
    def step(x):
        return hvd.allreduce(x) + hvd.allreduce(x * 2) + hvd.allreduce(x, name="mine") + hvd.allreduce(x, name="mine")

    expected = ["jit_step.allreduce.1", "jit_step.allreduce.2", "mine", "mine.2"]
    assert names_in(step, jnp.ones(3)) == expected, names_in(step, jnp.ones(3))
    jax.clear_caches()
    jax.jit(lambda x: hvd.allreduce(x))(jnp.ones(hvd.rank() + 1)[:1])  # what a rank compiled before does not matter
    if hvd.rank() == 0:
        jax.jit(lambda x: hvd.allreduce(x)).lower(jnp.ones(4))
    assert names_in(step, jnp.ones((4, 5))) == expected
    long = names_in(lambda x: hvd.allreduce(x, name="n" * 255), jnp.ones(3))
    assert len(long) == 1 and len(long[0]) <= 230, long


def case_nothing_is_left_out_joined_or_moved_out_of_a_loop():
    x = jnp.ones(300)

    @jax.jit
    def equal_calls(x):
        return hvd.allreduce(x, name="first"), hvd.allreduce(x, name="second"), x + 1

    def turn(total, _):
        return total + hvd.allreduce(x, hvd.Sum), None

    loop = jax.jit(lambda: jax.lax.scan(turn, jnp.zeros(300), None, length=5)[0])
    jax.block_until_ready((equal_calls(x), loop()))
    before = rueda.stats().submissions
    jax.block_until_ready(equal_calls(x))
    assert rueda.stats().submissions - before == 2, rueda.stats().submissions - before
    same(loop(), np.full(300, 5 * hvd.size()))
    assert rueda.stats().submissions - before == 7


def case_loops_and_branches():
    x = jnp.asarray(value_of(hvd.rank()))
    expected = of_all().sum(0) * hvd.size() ** 3
    same(jax.jit(lambda x: jax.lax.fori_loop(0, 4, lambda _, c: hvd.allreduce(c, hvd.Sum), x))(x), expected)
    same(jax.jit(lambda x, n: jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, hvd.allreduce(c[1], hvd.Sum)), (0, x)))(x, 4)[1],
         expected)
    choose = jax.jit(lambda flag, x: jax.lax.cond(flag, lambda x: hvd.allreduce(x, hvd.Sum), lambda x: hvd.allreduce(x, hvd.Max), x))
    same(choose(True, x), of_all().sum(0))
    same(choose(False, x), of_all().max(0))


def case_a_result_is_used_again_without_a_wait():
    x = jnp.asarray(value_of(hvd.rank(), (1000, 100)))
    step = jax.jit(lambda x: hvd.allreduce(x, hvd.Average) + 1)
    for _ in range(20):  # JAX runs ahead of the results
        x = step(x)
    near(x, of_all((1000, 100)).mean(0) + 20)


def case_runs_of_one_program_that_do_not_depend_on_each_other():
    step = jax.jit(lambda x: hvd.allreduce(jnp.sin(x) * 0 + x, hvd.Sum))
    results = [step(jnp.full((300_000,), float(i + hvd.rank()))) for i in range(20)]
    for i, result in enumerate(results):
        same(result[:5], np.full(5, sum(i + rank for rank in range(hvd.size()))))


def case_python_that_waits_in_the_middle_of_a_program():
    """XLA may call Python in the thread that completed a future, and that Python may wait for a collective."""
    def outside(x):
        return rueda.allreduce(np.asarray(x), op=rueda.Sum, name="from a callback")

    @jax.jit
    def step(x):
        first = hvd.allreduce(x, hvd.Sum)
        second = jax.pure_callback(outside, jax.ShapeDtypeStruct(x.shape, x.dtype), first)
        return hvd.allreduce(second, hvd.Sum), hvd.allreduce(x + 1, hvd.Sum)

    x = jnp.asarray(value_of(hvd.rank(), (5000,)))
    for _ in range(3):
        chained, single = step(x)
        same(chained, of_all((5000,)).sum(0) * hvd.size() ** 2)
        same(single, (of_all((5000,)) + 1).sum(0))


def case_copies_are_counted():
    """XLA's memory is its own: a compiled program's tensors are copied in and out once. Eagerly the result is not copied."""
    x = jnp.ones((1 << 18,), jnp.float32)
    step = jax.jit(lambda x: hvd.allreduce(x))
    jax.block_until_ready(step(x))
    before = rueda.stats()
    jax.block_until_ready(step(x))
    between = rueda.stats()
    assert between.bytes_copied_in - before.bytes_copied_in == x.nbytes
    assert between.bytes_copied_out - before.bytes_copied_out == x.nbytes
    result = jax.block_until_ready(hvd.allreduce(x))
    after = rueda.stats()
    assert after.bytes_copied_in - between.bytes_copied_in == x.nbytes
    assert after.bytes_copied_out == between.bytes_copied_out
    del result
    gc.collect()


def case_a_function_that_is_compiled_by_itself_may_be_called_once():
    def mean(x):
        return hvd.allreduce(x)

    def twice(function):
        return jax.jit(lambda x: function(x) + function(x + 1))

    x = jnp.asarray(value_of(hvd.rank()))
    error = raises(jax.errors.JaxRuntimeError, "is at two places of one compiled program", twice(jax.jit(mean)), x)
    assert hvd.rueda_error(error).code == -3, hvd.rueda_error(error)
    for function in (mean, jax.jit(mean, inline=True)):
        near(twice(function)(x), 2 * of_all().mean(0) + 1)
    near(jax.jit(lambda x: jax.jit(mean)(x) + 1)(x), of_all().mean(0) + 1)


def case_bad_input_says_what_to_do():
    x = jnp.ones((3, 2))
    for way in (lambda f: f, jax.jit):
        raises(TypeError, "arrays of dtype float8_e5m2 cannot be reduced; convert them with x.astype", way(hvd.allreduce),
               x.astype(jnp.float8_e5m2))
        raises(TypeError, "cannot be reduced", way(hvd.reducescatter), x.astype(jnp.float8_e5m2))
        raises(ValueError, "op=9 is unknown; use", way(lambda x: hvd.allreduce(x, 9)), x)
        raises(ValueError, "pass x.reshape(1)", way(hvd.allgather), jnp.float32(1))
        raises(ValueError, "root_rank=99 is not one of the ranks", way(lambda x: hvd.broadcast(x, 99)), x)
        raises(ValueError, "must have 1 to 255 bytes", way(lambda x: hvd.allreduce(x, name="")), x)
        raises(TypeError, "process_set must be", way(lambda x: hvd.allreduce(x, process_set=3)), x)
        raises(ValueError, "Adasum is for all-reduces alone", way(lambda x: hvd.reducescatter(x, hvd.Adasum)), x)
        raises(ValueError, "one for each rank", way(lambda x: hvd.allgather(x, first_dims=[3])), jnp.ones((4, 1))) if hvd.size() > 1 else None
        raises(ValueError, "must add up to the", way(lambda x: hvd.alltoall(x, [[7] * hvd.size()] * hvd.size())), x)
    raises(ValueError, "xs must be a list", hvd.grouped_allreduce, x)
    assert hvd.rueda_error(ValueError("no")) is None


def case_unequal_shapes_name_two_ranks():
    if hvd.size() < 2:
        return
    x = jnp.ones(1000 + (1 if hvd.rank() == 1 else 0))
    error = raises(hvd.RuedaError, "rank 1", functools.partial(hvd.allreduce, name="unequal"), x)
    assert error.code == -2, error
    error = raises(jax.errors.JaxRuntimeError, "rank 1", jax.jit(lambda x: hvd.allreduce(x, name="unequal")), x)
    assert hvd.rueda_error(error).code == -2, error
    same(jax.jit(lambda x: hvd.allreduce(x))(jnp.ones(3)), np.ones(3))  # the job goes on
    error = raises(jax.errors.JaxRuntimeError, "rank 1", jax.jit(hvd.allgather), jnp.ones((2 + (hvd.rank() == 1), 2)))
    assert hvd.rueda_error(error).code == -2, error


def case_several_devices_are_refused():
    if jax.device_count() == 1:
        return
    mesh = jax.sharding.Mesh(jax.devices(), ("i",))
    x = jax.device_put(jnp.ones(8), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    raises(NotImplementedError, "compile it for one device of each process", jax.jit(hvd.allreduce), x)
    same(hvd.allreduce(x), np.ones(8))


def case_again_after_shutdown():
    step = jax.jit(lambda x: hvd.allreduce(x, hvd.Sum))
    same(step(jnp.ones(3)), np.full(3, hvd.size()))
    hvd.shutdown()
    try:
        with hvd.rueda_errors():
            jax.block_until_ready(step(jnp.ones(3)))
        raise AssertionError("no error")
    except hvd.RuedaInternalError as error:
        assert error.code == -8 and "call rueda_init first" in str(error), error
    raises(ValueError, "Rueda has not been initialized; use rueda.init()", hvd.allreduce, jnp.ones(3))
    hvd.init()
    same(step(jnp.ones(3)), np.full(3, hvd.size()))
