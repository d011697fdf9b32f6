"""Holds cases of tensorflow_rank.py: every collective of rueda.tensorflow, eagerly and in graphs, against values computed by NumPy,
and against rueda's own functions for NumPy's arrays within the same graph."""

import itertools
import threading

import numpy as np
import rueda
import rueda.tensorflow as hvd
import tensorflow as tf
from tensorflow_expect import expect, expect_close, expect_error

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.int8, tf.int16, tf.int32, tf.int64)
SHAPES = ((), (1,), (0,), (17,), (3, 0, 2), (2, 3, 4), (1, 2, 1, 2, 1, 2, 1, 2, 2, 3))


def given(rank, shape, dtype):
    """Returns small whole numbers, other ones on each rank, which are exact in every dtype."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 7 + rank * 3) % 5 - (0 if dtype.is_unsigned else 2)
    return tf.cast(tf.constant(values.reshape(shape), tf.float64), dtype)


def reduced(op, shape, dtype):
    stacked = np.stack([given(rank, shape, dtype).numpy().astype(np.float64) for rank in range(hvd.size())])
    if op == hvd.Average:
        mean = stacked.sum(0) / hvd.size()
        return np.trunc(mean) if dtype in INTEGERS else tf.cast(mean, dtype).numpy()
    functions = {hvd.Sum: lambda x: x.sum(0), hvd.Product: lambda x: x.prod(0), hvd.Min: lambda x: x.min(0), hvd.Max: lambda x: x.max(0)}
    return functions[op](stacked)


def case_allreduce_of_every_dtype_op_and_shape():
    cases = list(itertools.product(FLOATS + INTEGERS, (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product), SHAPES))

    def run(*tensors):
        return [hvd.allreduce(tensor, op=op, name=f"{i}") for i, (tensor, (_, op, _)) in enumerate(zip(tensors, cases))]

    tensors = [given(hvd.rank(), shape, dtype) for dtype, _, shape in cases]
    for results in (run(*tensors), tf.function(run)(*tensors)):
        for result, (dtype, op, shape) in zip(results, cases):
            assert result.dtype == dtype, (result.dtype, dtype)
            expect(tf.cast(result, tf.float64), reduced(op, shape, dtype).astype(np.float64), f"{dtype} {op} {shape}")
    flags = tf.constant([True, hvd.rank() == 0, False])
    expect(hvd.allreduce(flags, op=hvd.Sum), [True, True, False])


def case_complex_numbers():
    ranks = np.arange(hvd.size())
    for dtype in (tf.complex64, tf.complex128):
        own = tf.constant([1 + 2j * hvd.rank(), hvd.rank() - 1j], dtype)
        expect_close(hvd.allreduce(own, op=hvd.Sum), [(1 + 2j * ranks).sum(), (ranks - 1j).sum()])
        expect_close(hvd.allreduce(own, op=hvd.Product), [(1 + 2j * ranks).prod(), (ranks - 1j).prod()])
        expect_error(ValueError, "no order", lambda own=own: hvd.allreduce(own, op=hvd.Max))


def case_scales_keep_the_digits_of_doubles():
    third = 1 / 3
    value = tf.fill([3], tf.constant(hvd.rank() + 1.0, tf.float64))
    total = sum(range(1, hvd.size() + 1))
    expect_close(hvd.allreduce(value, op=hvd.Sum, prescale_factor=third, postscale_factor=0.1), np.full(3, total * third * 0.1))
    assert abs(float(hvd.allreduce(value, op=hvd.Sum, prescale_factor=third)[0]) - total * third) < 1e-14
    expect_error(ValueError, "finite", lambda: hvd.allreduce(value, prescale_factor=float("nan")))


def case_compression():
    value = tf.fill([5], 1.0 / 3)
    expect(hvd.allreduce(value, compression=hvd.Compression.fp16), np.full(5, np.float16(1 / 3), np.float32))
    bf16, count = hvd.grouped_allreduce([value, tf.constant([1, 2])], compression=hvd.Compression.bf16, op=hvd.Max)
    expect(bf16, tf.cast(tf.cast(value, tf.bfloat16), tf.float32))
    expect(count, [1, 2])


def case_adasum_of_equal_contributions_is_one_of_them():
    value = tf.constant([1.0, 2.0, 3.0])
    expect_close(hvd.allreduce(value, op=hvd.Adasum), value)


def case_grouped_allreduce_of_several_dtypes():
    tensors = [given(hvd.rank(), (3, 2), tf.float32), given(hvd.rank(), (4,), tf.int64), given(hvd.rank(), (), tf.bfloat16)]

    def run(*tensors):
        return hvd.grouped_allreduce(list(tensors), op=hvd.Sum)

    for results in (run(*tensors), tf.function(run)(*tensors)):
        for result, (shape, dtype) in zip(results, [((3, 2), tf.float32), ((4,), tf.int64), ((), tf.bfloat16)]):
            expect(tf.cast(result, tf.float64), reduced(hvd.Sum, shape, dtype))
    assert hvd.grouped_allreduce([]) == []


def case_indexed_slices_are_gathered():
    rank, size = hvd.rank(), hvd.size()
    slices = tf.IndexedSlices(tf.fill([rank + 1, 2], float(rank)), tf.range(rank + 1), tf.constant([10, 2]))
    summed = hvd.allreduce(slices, op=hvd.Sum)
    dense = sum(np.pad(np.full((one + 1, 2), float(one)), ((0, 9 - one), (0, 0))) for one in range(size))
    expect(tf.convert_to_tensor(summed), dense)
    expect_close(tf.convert_to_tensor(hvd.allreduce(slices)), dense / size)
    expect_error(NotImplementedError, "Sum or Average", lambda: hvd.allreduce(slices, op=hvd.Max))


def case_allgather_of_sizes_that_differ():
    rank, size = hvd.rank(), hvd.size()
    wanted = np.concatenate([np.full((one + 1, 2), one) for one in range(size)])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int32)])
    def gather(tensor):
        gathered = hvd.allgather(tensor)
        assert gathered.shape.as_list() == [None, 2], gathered.shape
        return gathered

    tensor = tf.fill([rank + 1, 2], rank)
    for _ in range(2):
        expect(gather(tensor), wanted)
    expect(hvd.allgather(tensor), wanted)
    expect(hvd.allgather(tf.zeros([0, 3])), np.zeros((0, 3)))
    expect(hvd.allgather(tf.fill([1 if rank else 0], rank)), list(range(1, size)))
    both = hvd.grouped_allgather([tensor, tf.fill([2], float(rank))], name="both")
    expect(both[0], wanted)
    expect(both[1], np.repeat(np.arange(size), 2))
    expect_error(ValueError, "first dimension", lambda: hvd.allgather(tf.constant(1.0)))


def case_broadcast():
    for root in range(hvd.size()):
        expect(hvd.broadcast(tf.fill([2, 3], hvd.rank()), root), np.full((2, 3), root))
        expect(tf.function(lambda x, r=root: hvd.broadcast(x, r))(tf.fill([2], hvd.rank())), [root, root])
    expect_error(ValueError, "root_rank=99", lambda: hvd.broadcast(tf.zeros(1), 99))


def case_alltoall():
    rank, size = hvd.rank(), hvd.size()
    splits = [(rank + other) % 3 for other in range(size)]
    tensor = tf.repeat(tf.range(size) + 100 * rank, splits)
    wanted = np.concatenate([np.full((one + rank) % 3, rank + 100 * one) for one in range(size)])
    for call in (hvd.alltoall, tf.function(hvd.alltoall)):
        received, received_splits = call(tensor, tf.constant(splits), name="uneven")
        expect(received, wanted)
        expect(received_splits, [(one + rank) % 3 for one in range(size)])
    expect(hvd.alltoall(tf.range(2 * size) + 100 * rank), np.concatenate([[2 * rank + 100 * o, 2 * rank + 1 + 100 * o] for o in range(size)]))
    received, _ = hvd.alltoall(tf.range(size + 5), splits=[1] * size)  # the last rows go nowhere
    expect(received, [rank] * size)
    wrong = [tf.errors.InvalidArgumentError, "splits must be"]
    expect_error(*wrong, lambda: hvd.alltoall(tf.range(3), splits=[9] * size))
    expect_error(*wrong, lambda: hvd.alltoall(tf.range(3), splits=[1] * (size + 1)))
    if size > 1:
        expect_error(tf.errors.InvalidArgumentError, "give splits", lambda: hvd.alltoall(tf.range(2 * size + 1)))


def case_reducescatter():
    rank, size = hvd.rank(), hvd.size()
    rows = [len(part) for part in np.array_split(np.arange(size * 2 + 1), size)]
    begin = sum(rows[:rank])
    tensor = tf.range(2 * size + 1, dtype=tf.float32) + float(rank)
    whole = np.arange(2 * size + 1) * size + sum(range(size))
    for call in (hvd.reducescatter, tf.function(hvd.reducescatter)):
        expect(call(tensor, op=hvd.Sum, name="rows"), whole[begin:begin + rows[rank]])
    expect_close(hvd.grouped_reducescatter([tensor])[0], whole[begin:begin + rows[rank]] / size)


def case_process_sets():
    rank, size = hvd.rank(), hvd.size()
    if size < 3:
        return
    pair = hvd.add_process_set([0, size - 1])
    if pair.included():
        expect(hvd.allreduce(tf.constant(float(rank)), op=hvd.Sum, process_set=pair), float(size - 1))
        expect(hvd.allgather(tf.constant([rank]), process_set=pair), [0, size - 1])
        expect(hvd.size_op(pair.process_set_id), 2)
    expect(hvd.process_set_included_op(pair.process_set_id), int(pair.included()))
    assert hvd.remove_process_set(pair)


def case_the_job_is_asked_when_the_graph_runs():
    @tf.function
    def ask():
        return hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()

    expect(tf.stack(ask()), [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()])
    expect(hvd.rank_op(), hvd.rank())


def case_variables_and_objects():
    rank = hvd.rank()
    variables = [tf.Variable(tf.fill([3], float(rank))), tf.Variable([rank], dtype=tf.int64)]
    hvd.broadcast_variables(variables, root_rank=hvd.size() - 1)
    expect(variables[0], [hvd.size() - 1.0] * 3)
    expect(variables[1], [hvd.size() - 1])
    variables[0].assign(tf.fill([3], float(rank)))
    values = tf.function(lambda: hvd.broadcast_([variables[0]], 0))()
    expect(values[0], [0.0] * 3)
    expect(variables[0], [0.0] * 3)
    assert hvd.broadcast_object({"from": rank}, 0) == {"from": 0}
    assert hvd.broadcast_object_fn(0)([rank]) == [0]
    assert hvd.allgather_object("x" * rank) == ["x" * one for one in range(hvd.size())]


def case_constants_are_reduced_in_every_call():
    """TensorFlow would take an op of constants for a constant, run it while it optimises, alone, and never again."""
    before = rueda.stats().submissions

    @tf.function
    def reduce_constants():
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum), hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)

    for call in range(1, 4):
        for result in reduce_constants():
            expect(result, [hvd.size(), 2 * hvd.size()])
        assert rueda.stats().submissions - before == 2 * call, rueda.stats().submissions - before


def case_ops_of_a_graph_do_not_wait_for_each_other():
    """Stateful ops would run one after the other, and ranks whose orders differ would wait for each other for ever."""
    function = tf.function(lambda x: [hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0), hvd.alltoall(x), hvd.reducescatter(x)])
    graph = function.get_concrete_function(tf.TensorSpec([hvd.size()])).graph
    ours = [op for op in graph.get_operations() if op.type.startswith("Rueda")]
    assert len(ours) == 6, ours
    for op in ours:
        assert op.op_def.is_stateful == (op.type == "RuedaAnchor"), op.type
        assert not op.control_inputs, op


def case_branches_and_loops():
    @tf.function
    def run(x, times, is_summed):
        for i in tf.range(times):
            x = hvd.allreduce(x) + tf.cast(i, tf.float32)
        if is_summed:
            x = hvd.allreduce(x, op=hvd.Sum)
        else:
            x = hvd.allreduce(x, op=hvd.Max)
        return x

    mean = (hvd.size() - 1) / 2
    expect_close(run(tf.constant([float(hvd.rank())]), tf.constant(4), tf.constant(True)), [hvd.size() * (mean + 6)])
    expect_close(run(tf.constant([float(hvd.rank())]), tf.constant(4), tf.constant(False)), [mean + 6])


def case_the_same_as_numpy_arrays_within_one_graph():
    """tf.numpy_function runs rueda's own functions: an oracle that shares nothing of the ops."""
    def by_numpy(function, x, dtype):
        return tf.numpy_function(function, [x], dtype)

    @tf.function
    def both(x):
        average = hvd.allreduce(x)
        gathered = hvd.allgather(x)
        part = hvd.reducescatter(x, op=hvd.Sum)
        with tf.control_dependencies([average, gathered, part]):  # such functions run one after the other: no rank may begin earlier
            return [(average, by_numpy(lambda a: rueda.allreduce(a, name="by numpy"), x, tf.float32)),
                    (gathered, by_numpy(lambda a: rueda.allgather(a, name="gathered by numpy"), x, tf.float32)),
                    (part, by_numpy(lambda a: rueda.reducescatter(a, name="part by numpy", op=rueda.Sum), x, tf.float32))]

    rng = np.random.default_rng(hvd.rank())
    for op, oracle in both(tf.constant(rng.normal(size=(2 * hvd.size() + 1, 50)), tf.float32)):
        expect(op, oracle)


def case_results_are_not_copied():
    before = rueda.stats()
    tensors = [tf.ones([1000]) for _ in range(5)]
    tf.function(lambda *x: hvd.grouped_allreduce(list(x), name="not copied"))(*tensors)
    gathered = hvd.allgather(tf.ones([hvd.rank() + 1, 3]))
    hvd.reducescatter(tf.ones([50]))
    assert rueda.stats().bytes_copied_out == before.bytes_copied_out, (rueda.stats(), before)
    copied_in = rueda.stats().bytes_copied_in
    hvd.allreduce(gathered)  # it lies in shared memory already
    assert rueda.stats().bytes_copied_in == copied_in


def case_memory_comes_back():
    def step():
        hvd.allreduce(tf.ones([1 << 16]), name="comes back")

    for _ in range(20):
        step()
    held = rueda.stats().arena_bytes
    for _ in range(200):
        step()
    assert rueda.stats().arena_bytes == held, (rueda.stats(), held)


def case_threads():
    """Several threads run graphs of their own at once."""
    failures = []

    def run(number):
        try:
            function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name=f"of thread {number}"))
            for i in range(20):
                expect(function(tf.constant([float(i)])), [float(i * hvd.size())])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def case_bad_input_is_one_sentence():
    expect_error(TypeError, "tf.cast", lambda: hvd.allreduce(tf.constant(["text"])))
    expect_error(TypeError, "to_tensor()", lambda: hvd.allreduce(tf.ragged.constant([[1.0], [2.0, 3.0]])))
    expect_error(TypeError, "tf.sparse.to_dense", lambda: hvd.allreduce(tf.sparse.from_dense([[1.0]])))
    expect_error(TypeError, "tf.convert_to_tensor", lambda: hvd.broadcast(tf.IndexedSlices(tf.ones([1]), [0]), 0))
    expect_error(ValueError, "op=77", lambda: hvd.allreduce(tf.ones(1), op=77))
    expect_error(ValueError, "only one of the two", lambda: hvd.allreduce(tf.ones(1), average=True, op=hvd.Sum))
    expect_error(RuntimeError, "outside of tf.function", lambda: tf.function(hvd.join)())
    expect_error(RuntimeError, "outside of tf.function", lambda: tf.function(lambda: hvd.broadcast_object(1))())
    expect_error(NotImplementedError, "jit_compile=False", lambda: tf.function(hvd.allreduce, jit_compile=True)(tf.ones(1)))
    expect_error(TypeError, "use tf.cast to one of float32", lambda: hvd.allreduce(tf.quantization.quantize([1.0], 0.0, 1.0, tf.qint8).output))
    kept = []
    tf.function(lambda x: kept.append(x + 1) or x)(tf.ones(1))
    expect_error(TypeError, "return the tensor from there", lambda: hvd.allreduce(kept[0]))
    hvd.allreduce(tf.ones(1))  # all is well after it


def case_some_ranks_eagerly_and_others_in_a_graph():
    def run(x):
        return hvd.allreduce(x, op=hvd.Sum, name="mixed"), hvd.allgather(x, name="mixed rows")

    summed, gathered = (run if hvd.rank() % 2 else tf.function(run))(tf.fill([2], float(hvd.rank())))
    expect(summed, np.full(2, sum(range(hvd.size()))))
    expect(gathered, np.repeat(np.arange(hvd.size()), 2))


def case_a_graph_that_fails_beside_a_collective():
    @tf.function
    def fail(x):
        reduced = hvd.allreduce(x, op=hvd.Sum, name="beside a failure")
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0, ["is not negative"])]):
            return reduced + tf.identity(x)

    for _ in range(5):
        expect_error(tf.errors.InvalidArgumentError, "is not negative", lambda: fail(tf.ones([1000])))
    expect(hvd.allreduce(tf.ones(1), op=hvd.Sum), [hvd.size()])


def case_the_job_is_left_and_joined_again():
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again"))
    expect(function(tf.ones(1)), [hvd.size()])
    size = hvd.size()
    hvd.shutdown()
    expect_error(hvd.HorovodInternalError, "init", lambda: hvd.rank_op())
    expect_error(tf.errors.AbortedError, "RUEDA_ERR_SHUT_DOWN", lambda: function(tf.ones(1)))
    expect_error(ValueError, "init", lambda: hvd.allreduce(tf.ones(1)))
    hvd.init()
    expect(function(tf.ones(1)), [size])


def case_ranks_that_disagree_are_told():
    if hvd.size() < 2:
        return
    shape = [2] if hvd.rank() == 0 else [3]
    text = expect_error(hvd.HorovodInternalError, "rank", lambda: hvd.allreduce(tf.ones(shape), name="other shapes"))
    assert "other shapes" in text, text
    graph = tf.function(lambda x: hvd.allreduce(x, name="other shapes in a graph"))
    text = expect_error(tf.errors.AbortedError, "RUEDA_ERR_MISMATCH", lambda: graph(tf.ones(shape)))
    assert "other shapes in a graph" in text, text


def case_a_state_of_variables_goes_back_to_what_was_saved():
    rank = hvd.rank()
    variables = [tf.Variable(tf.fill([2, 3], float(rank))), tf.Variable(rank, dtype=tf.int64), tf.Variable([rank > 0]),
                 tf.Variable(tf.fill([4], tf.cast(rank, tf.bfloat16)))]
    state = hvd.elastic.TensorFlowState(variables, step=rank)

    def expect_all(value):
        for variable in variables:
            expect(tf.cast(variable, tf.float64), np.full(variable.shape, float(value > 0 if variable.dtype == tf.bool else value)))
        expect(state.step, value)

    def change(value):
        for variable in variables:
            variable.assign(tf.cast(tf.fill(variable.shape, value), variable.dtype))
        state.step = value

    change(7)
    state.restore()
    expect_all(rank)
    change(2 + rank)
    state.save()
    change(7)
    state.restore()
    expect_all(2 + rank)
    state.sync()
    expect_all(2)
    change(7)
    state.restore()
    expect_all(2)
    expect_error(ValueError, "pass variables=[...]", hvd.elastic.TensorFlowState)


def case_uneven_inputs():
    for _ in range(hvd.rank()):
        hvd.allreduce(tf.ones(1), op=hvd.Sum, name="uneven")
    assert hvd.join() == hvd.size() - 1
