"""Holds cases of torch_rank.py: every collective of rueda.torch, against values computed in float64."""

import itertools
import pickle

import numpy as np
import rueda
import rueda.torch as hvd
import torch
from torch_support import expect_error, expect_equal, rank_and_size

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SHAPES = ((), (1,), (0,), (17,), (3, 0, 2), (2, 3, 4), (40, 1000))


def given(rank, shape, dtype):
    """Returns small whole numbers, other ones on each rank, which are exact in every dtype."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 7 + rank * 3) % 5 - (0 if dtype == torch.uint8 else 2)
    return torch.tensor(values, dtype=torch.float64).to(dtype).reshape(shape)


def reduced(op, shape, dtype):
    _, size = rank_and_size()
    stacked = torch.stack([given(rank, shape, dtype).double() for rank in range(size)])
    if op == hvd.Average:
        mean = stacked.sum(0) / size
        return (mean.trunc() if dtype in INTEGERS else mean).to(dtype)
    functions = {hvd.Sum: lambda x: x.sum(0), hvd.Product: lambda x: x.prod(0),
                 hvd.Min: lambda x: x.min(0).values, hvd.Max: lambda x: x.max(0).values}
    return (functions[op](stacked) if stacked.numel() else stacked[0]).to(dtype)


def case_allreduce_of_every_dtype_op_and_shape():
    rank, size = rank_and_size()
    handles = []
    for dtype, op, shape in itertools.product(FLOATS + INTEGERS, (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product),
                                              SHAPES):
        tensor = given(rank, shape, dtype)
        handles.append((hvd.allreduce_async(tensor, name=f"{dtype}.{op}.{shape}", op=op), tensor, op))
    for handle, tensor, op in handles:
        result = hvd.synchronize(handle)
        expect_equal(result, reduced(op, tuple(tensor.shape), tensor.dtype), f"op {op}")
        expect_equal(tensor, given(rank, tuple(tensor.shape), tensor.dtype), "the input")
    for dtype in (torch.complex64, torch.complex128):
        waves = torch.tensor([1 + 2j, 1j, 0.5], dtype=dtype) * (rank + 1)
        total = torch.tensor([1 + 2j, 1j, 0.5], dtype=dtype) * (size * (size + 1) / 2)
        expect_equal(hvd.allreduce(waves, op=hvd.Sum), total)
        expect_equal(hvd.allreduce(waves.conj(), op=hvd.Sum), total.conj().resolve_conj())
        expect_equal(hvd.allreduce(torch.full((3,), 1j, dtype=dtype), op=hvd.Product), torch.full((3,), 1j ** size, dtype=dtype))
        expect_error(hvd.HorovodInternalError, f"{str(dtype)[6:]}.* no max", hvd.allreduce, waves, op=hvd.Max)
    flags = torch.tensor([True, rank == 0, False])
    expect_equal(hvd.allreduce(flags, op=hvd.Sum), torch.tensor([True, True, False]))
    expect_equal(hvd.allreduce(flags, op=hvd.Product), torch.tensor([True, size == 1, False]))


def case_contributions_are_powers_of_two():
    rank, size = rank_and_size()
    powers = torch.full((1000,), 2.0 ** rank)
    expect_equal(hvd.allreduce(powers, op=hvd.Sum), torch.full((1000,), 2.0 ** size - 1))
    expect_equal(hvd.allreduce(powers, average=False), torch.full((1000,), 2.0 ** size - 1))
    expect_equal(hvd.allreduce(powers), torch.full((1000,), (2.0 ** size - 1) / size))


def case_scales():
    rank, size = rank_and_size()
    tensor = torch.full((5,), rank + 1.0)
    total = size * (size + 1) / 2
    expect_equal(hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
                 torch.full((5,), 2 * total))
    whole = torch.full((5,), 7 * (rank + 1), dtype=torch.int32)
    cut = sum(int(0.4 * 7 * (other + 1)) for other in range(size))
    expect_equal(hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.4), torch.full((5,), cut, dtype=torch.int32))
    expect_equal(hvd.reducescatter(torch.ones(size), op=hvd.Sum, prescale_factor=2.0), torch.full((1,), 2.0 * size))


def case_in_place():
    rank, size = rank_and_size()
    tensor = torch.full((4, 3), float(rank))
    same = hvd.allreduce_(tensor, op=hvd.Sum)
    assert same is tensor
    expect_equal(tensor, torch.full((4, 3), size * (size - 1) / 2))
    first, second = torch.ones(3), torch.full((2, 2), rank, dtype=torch.int64)
    results = hvd.grouped_allreduce_([first, second], op=hvd.Max)
    assert results[0] is first and results[1] is second
    expect_equal(second, torch.full((2, 2), size - 1, dtype=torch.int64))
    parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
    assert hvd.broadcast_(parameter, root_rank=size - 1) is parameter
    expect_equal(parameter.detach(), torch.full((2,), size - 1.0))


def case_tensors_that_are_not_contiguous():
    rank, size = rank_and_size()
    base = torch.arange(12.0).reshape(3, 4)
    total = size * (size + 1) / 2
    turned = (base * (rank + 1)).t()
    expect_equal(hvd.allreduce(turned, op=hvd.Sum), base.t() * total)
    whole = torch.zeros(3, 4) + rank
    column = whole[:, 1]
    assert hvd.allreduce_(column, op=hvd.Sum) is column
    expect_equal(whole[:, 1], torch.full((3,), size * (size - 1) / 2))
    expect_equal(whole[:, 0], torch.full((3,), float(rank)))
    expanded = torch.tensor([float(rank)]).expand(3)
    expect_equal(hvd.broadcast(expanded, 0), torch.zeros(3))
    expect_equal(hvd.allgather(turned[:2]), torch.cat([(base * (r + 1)).t()[:2] for r in range(size)]))


def case_grouped_allreduce():
    rank, size = rank_and_size()
    tensors = [torch.full((4,), float(rank)), torch.full((2,), rank, dtype=torch.int32)]
    for results in (hvd.grouped_allreduce(tensors, name="group", op=hvd.Sum),
                    hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum))):
        expect_equal(results[0], torch.full((4,), size * (size - 1) / 2))
        expect_equal(results[1], torch.full((2,), size * (size - 1) // 2, dtype=torch.int32))


def case_a_group_that_comes_again_is_reduced_as_it_is_now():
    rank, size = rank_and_size()
    total = float(sum(range(size)))
    memory = torch.zeros(12)
    tensors = [memory[:4], memory[4:].view(2, 4)]

    def reduce_again(given):
        for tensor in given:
            tensor.fill_(rank)
        results = hvd.grouped_allreduce_(given, name="again", op=hvd.Sum)
        assert all(result is tensor for result, tensor in zip(results, given))
        for result in results:
            expect_equal(result, torch.full_like(result, total))

    for _ in range(3):
        reduce_again(tensors)
    reduce_again([memory[:4], torch.zeros(2, 4)])                  # elsewhere
    hvd.barrier()
    reduce_again([memory[:4], memory[4:].view(4, 2)])              # of another shape
    reduce_again([memory[:4], memory[4:].view(4, 2).t()])          # not contiguous any more
    reduce_again([memory[:4].view(torch.int32), memory[4:]])       # of another dtype
    reduce_again([memory[:8], memory[8:]])                         # of other sizes
    expect_error(TypeError, r"tensors\[1\] must be a torch.Tensor, not int",
                 hvd.grouped_allreduce_, [memory[:4], 7], name="again", op=hvd.Sum)
    scaled = [torch.full((4,), float(rank)), torch.full((3,), float(rank))]
    for factor in (1.0, 0.5):
        for tensor in scaled:
            tensor.fill_(rank)
        for result in hvd.grouped_allreduce_(scaled, name="scaled", op=hvd.Sum, prescale_factor=factor):
            expect_equal(result, torch.full_like(result, total * factor))


def case_compression():
    rank, size = rank_and_size()
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(torch.full((9,), 2.0 ** rank), op=hvd.Sum, compression=compression)
        expect_equal(result, torch.full((9,), 2.0 ** size - 1))
        whole = hvd.allreduce(torch.tensor([2 ** 30]), op=hvd.Max, compression=compression)
        expect_equal(whole, torch.tensor([2 ** 30]))
    parts = hvd.grouped_reducescatter([torch.ones(size)], op=hvd.Sum, compression=hvd.Compression.fp16)
    expect_equal(parts[0], torch.full((1,), float(size)))


def case_what_is_only_sent_may_have_any_dtype():
    rank, size = rank_and_size()
    for dtype in FLOATS + INTEGERS + (torch.bool, torch.complex64, torch.complex128):
        for shape in ((), (3,), (2, 3), (0, 2)):
            tensor = (given(rank, shape, torch.float64) != 0).to(dtype)
            expected = (given(size - 1, shape, torch.float64) != 0).to(dtype)
            expect_equal(hvd.broadcast(tensor, size - 1), expected, str(dtype))
            if shape:
                everyone = torch.cat([(given(r, shape, torch.float64) != 0).to(dtype) for r in range(size)])
                expect_equal(hvd.allgather(tensor), everyone, str(dtype))
        expect_equal(hvd.alltoall(torch.full((size,), rank).to(dtype)), torch.arange(size).to(dtype), str(dtype))
    half = torch.full((3,), rank + 0.5).to(torch.complex32)  # the daemon has no such type
    expect_equal(torch.view_as_real(hvd.broadcast(half, size - 1)), torch.tensor([[size - 0.5, 0.0]] * 3, dtype=torch.float16))


def case_allgather_of_unequal_rows():
    rank, size = rank_and_size()
    tensor = torch.full((rank * 2, 3), float(rank))
    expected = torch.cat([torch.full((r * 2, 3), float(r)) for r in range(size)])
    expect_equal(hvd.allgather(tensor, name="rows"), expected)
    first, second = hvd.grouped_allgather([tensor, torch.full((1,), rank)], name="group")
    expect_equal(first, expected)
    expect_equal(second, torch.arange(size))
    handle = hvd.grouped_allgather_async([tensor, tensor])
    while not hvd.poll(handle):
        pass
    expect_equal(hvd.synchronize(handle)[1], expected)


def case_alltoall():
    rank, size = rank_and_size()
    sent = torch.cat([torch.full((target, 2), 10 * rank + target) for target in range(size)])
    wanted = torch.cat([torch.full((rank, 2), 10 * source + rank) for source in range(size)])
    splits = torch.arange(size, dtype=torch.int32)
    for chosen in (splits, splits.tolist()):
        output, received = hvd.alltoall(sent, chosen, name="alltoall")
        expect_equal(output, wanted)
        expect_equal(received, torch.full((size,), rank, dtype=torch.int32))
    expect_equal(hvd.alltoall(torch.arange(2 * size)), torch.tensor([2 * rank, 2 * rank + 1] * size))
    output, _ = hvd.alltoall(torch.full((size + 5,), rank), [1] * size)  # the rows beyond go nowhere
    expect_equal(output, torch.arange(size))
    for wrong in ([1] * (size + 1), [size] * size + [1], torch.ones(size), [-1] * size):
        expect_error(ValueError, "splits", hvd.alltoall, torch.ones(size), wrong)
    if size > 1:
        expect_error(ValueError, "split equally", hvd.alltoall, torch.ones(size + 1))


def case_reducescatter():
    rank, size = rank_and_size()
    rows = 2 * size + 1
    tensor = torch.full((rows, 2), 2.0 ** rank)
    mine = 3 if rank == 0 else 2
    expect_equal(hvd.reducescatter(tensor, op=hvd.Sum), torch.full((mine, 2), 2.0 ** size - 1))
    expect_equal(hvd.reducescatter(tensor), torch.full((mine, 2), (2.0 ** size - 1) / size))
    first, second = hvd.grouped_reducescatter([tensor, torch.arange(size) * 2], op=hvd.Max)
    expect_equal(first, torch.full((mine, 2), 2.0 ** (size - 1)))
    expect_equal(second, torch.tensor([2 * rank]))


def case_handles():
    rank, size = rank_and_size()
    handle = hvd.allreduce_async(torch.ones(3), name="handle")
    result = hvd.synchronize(handle)
    expect_equal(result, torch.ones(3))
    assert hvd.synchronize(handle) is None, "a second time"
    if rank == 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
    if rank == 0 and size > 1:
        expect_error(ValueError, "twice", hvd.allreduce_async_, torch.ones(2), name="twice")
        expect_error(hvd.HorovodInternalError, "twice", hvd.allreduce_async, torch.ones(2), name="twice")
    hvd.barrier()
    if rank != 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
    expect_equal(hvd.synchronize(first), torch.ones(2))
    # One name is used in several functions.
    handles = [hvd.allreduce_async(torch.ones(1), name="shared"), hvd.broadcast_async(torch.ones(1), 0, name="shared"),
               hvd.allgather_async(torch.ones(1), name="shared"), hvd.reducescatter_async(torch.ones(9), name="shared")]
    for handle in handles:
        hvd.synchronize(handle)


def case_what_ranks_disagree_on():
    rank, size = rank_and_size()
    if size == 1:
        return
    odd = rank % 2
    expect_error(hvd.HorovodInternalError, "shape", hvd.allreduce, torch.ones(3 + odd), name="shapes")
    expect_error(RuntimeError, "dtype", hvd.allreduce, torch.ones(3).to(torch.int32 if odd else torch.float32),
                 name="dtypes")
    expect_error(hvd.HorovodInternalError, "root", hvd.broadcast, torch.ones(3), odd, name="roots")
    expect_error(hvd.HorovodInternalError, "shape", hvd.allgather, torch.ones(2, 3 + odd), name="columns")
    expect_error(hvd.HorovodInternalError, "dtype", hvd.allgather,
                 torch.ones(2).to(torch.int32 if odd else torch.float32), name="kinds")
    expect_error(hvd.HorovodInternalError, "shape", hvd.grouped_allgather,
                 [torch.ones(2, 3 + odd), torch.ones(1, 1)], name="groups")
    expect_error(hvd.HorovodInternalError, "shape", hvd.alltoall, torch.ones(size, 3 + odd), name="exchanges")
    expect_error(hvd.HorovodInternalError, "shape", hvd.reducescatter, torch.ones(size, 3 + odd), name="parts")
    expect_equal(hvd.allreduce(torch.ones(3), name="after"), torch.ones(3))


def case_adasum():
    """Adasum gives of equal tensors their value, and of orthogonal ones the sum, tensor by tensor; it is scaled with its inputs.
    """
    rank, size = rank_and_size()
    for dtype in FLOATS:
        same = torch.tensor([1.5, -2.0, 0.25], dtype=dtype)
        own = torch.zeros(size, dtype=dtype)
        own[rank] = rank + 1
        expect_equal(hvd.allreduce(same, op=hvd.Adasum), same, dtype)
        expect_equal(hvd.allreduce(own, op=hvd.Adasum), torch.arange(1, size + 1).to(dtype), dtype)
        first, second = hvd.grouped_allreduce([same, own], op=hvd.Adasum, prescale_factor=2.0, postscale_factor=-1.0)
        expect_equal(first, -2 * same, dtype)
        expect_equal(second, -2 * torch.arange(1, size + 1).to(dtype), dtype)
        place = own.clone()
        assert hvd.allreduce_(place, op=hvd.Adasum) is place
        expect_equal(place, torch.arange(1, size + 1).to(dtype), dtype)
    expect_equal(hvd.allreduce(torch.full((4,), 3.0), op=hvd.Adasum, compression=hvd.Compression.fp16),
                 torch.full((4,), 3.0))
    mine = torch.ones(2, requires_grad=True)
    expect_error(NotImplementedError, "only Sum and Average", hvd.allreduce(mine, op=hvd.Adasum).sum().backward)


def case_what_is_refused_before_it_is_submitted():
    expect_error(TypeError, "torch.Tensor", hvd.allreduce, [1.0])
    expect_error(ValueError, "not supported", hvd.allreduce, torch.ones(2, dtype=torch.complex32))
    expect_error(ValueError, "not supported", hvd.allreduce_async_, torch.ones(2, dtype=torch.complex32))
    expect_error(ValueError, "sparse", hvd.allreduce, torch.eye(2).to_sparse())
    expect_error(ValueError, "supersedes", hvd.allreduce, torch.ones(2), average=True, op=hvd.Sum)
    expect_error(ValueError, "op=17", hvd.allreduce, torch.ones(2), op=17)
    expect_error(ValueError, "root_rank=99", hvd.broadcast, torch.ones(2), 99)
    expect_error(ValueError, "first dimension", hvd.allgather, torch.tensor(1.0))
    expect_error(ValueError, "first dimension", hvd.reducescatter, torch.tensor(1.0))
    expect_error(hvd.HorovodInternalError, "first dimension", hvd.reducescatter, torch.tensor(1.0))
    expect_error(hvd.HorovodInternalError, "int32.*Adasum", hvd.allreduce, torch.ones(2, dtype=torch.int32),
                 op=hvd.Adasum)
    expect_error(hvd.HorovodInternalError, "reduce_scatter.*Adasum", hvd.reducescatter, torch.ones(2), op=hvd.Adasum)
    if hvd.cross_rank() == 0:
        expect_error(ValueError, "writes no timeline", hvd.stop_timeline)
    expect_error(ValueError, "at least one", hvd.grouped_allreduce, [])


def case_a_root_is_a_whole_number():
    """1.5 was once taken for rank 1."""
    for root in (0.0, 0.5, "0", None):
        expect_error(TypeError, "integer", hvd.broadcast, torch.ones(2), root)
        expect_error(TypeError, "integer", hvd.broadcast_object, {}, root)
        for function in (rueda.gather, rueda.reduce, rueda.scatter, rueda.broadcast):
            expect_error(TypeError, "integer", function, np.ones(hvd.size()), root)
    assert hvd.broadcast(torch.full((2,), float(hvd.rank())), torch.tensor(0)).tolist() == [0.0, 0.0]


def case_process_sets():
    rank, size = rank_and_size()
    expect_equal(hvd.allreduce(torch.ones(2), process_set=hvd.global_process_set), torch.ones(2))
    assert hvd.global_process_set.size() == size and hvd.global_process_set.rank() == rank
    if size < 3:
        expect_error(ValueError, "exists already", hvd.add_process_set, list(range(size)))
        return
    last = hvd.add_process_set([0, size - 1])
    assert last.included() == (rank in (0, size - 1)) and last.size() == 2
    if last.included():
        powers = torch.full((3,), 2.0 ** rank)
        expect_equal(hvd.allreduce(powers, op=hvd.Sum, process_set=last), torch.full((3,), 1 + 2.0 ** (size - 1)))
        expect_equal(hvd.allgather(torch.tensor([rank]), process_set=last), torch.tensor([0, size - 1]))
        expect_equal(hvd.alltoall(torch.tensor([rank, rank]), process_set=last), torch.tensor([0, size - 1]))
        expect_equal(hvd.broadcast(torch.tensor([rank]), size - 1, process_set=last), torch.tensor([size - 1]))
        assert hvd.broadcast_object({"rank": rank}, size - 1, process_set=last) == {"rank": size - 1}
        hvd.barrier(process_set=last)
    else:
        expect_error((ValueError, hvd.HorovodInternalError), "not in|not one|no member|process set",
                     hvd.allreduce, torch.ones(2), process_set=last)
    hvd.barrier()
    expect_error(ValueError, "", hvd.add_process_set, [0, size - 1])
    expect_error(ValueError, "", hvd.add_process_set, [0, 99])
    assert hvd.remove_process_set(last) is True and hvd.remove_process_set(last) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    again = hvd.add_process_set(hvd.ProcessSet([0, size - 1]))
    assert again.process_set_id not in (None, 0)
    hvd.remove_process_set(again)


def case_a_process_set_may_be_empty():
    """Horovod's tests cut the ranks into even and odd ones, also where there is one rank alone."""
    rank, size = rank_and_size()
    odd = hvd.add_process_set([other for other in range(size) if other % 2 == 1 and other > 2])
    assert odd.size() == max(0, size // 2 - 1) and odd.included() == (rank % 2 == 1 and rank > 2)
    if not odd.included():
        expect_error(hvd.HorovodInternalError, "not in process set", hvd.allreduce, torch.ones(2), process_set=odd)
    expect_equal(hvd.allreduce(torch.ones(2)), torch.ones(2))
    assert hvd.remove_process_set(odd)


def case_join_with_uneven_data():
    rank, size = rank_and_size()
    for step in range(2 + rank):
        there = sum(step < 2 + other for other in range(size))
        expect_equal(hvd.allreduce(torch.ones(3), op=hvd.Sum, name="uneven"), torch.full((3,), float(there)))
    assert hvd.join() == size - 1


def case_objects():
    rank, size = rank_and_size()
    assert hvd.broadcast_object({"from": rank}, root_rank=size - 1) == {"from": size - 1}
    assert hvd.broadcast_object(None) is None
    assert hvd.allgather_object(["x"] * rank, name="objects") == [["x"] * other for other in range(size)]
    error = pickle.loads(pickle.dumps(hvd.HorovodInternalError("gone", -5)))
    assert isinstance(error, rueda.HorovodInternalError) and error.code == -5 and str(error) == "gone"


def case_parameters_and_optimizer_state():
    rank, size = rank_and_size()
    root = size - 1
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.RMSprop, {}),
                          (torch.optim.Adagrad, {}), (torch.optim.AdamW, {"amsgrad": True})):
        torch.manual_seed(rank)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        optimizer = kind(model.parameters(), lr=0.1 * (rank + 1), **options)
        if rank == root:  # the others have no state yet
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.randn(5, 3)).sum().backward()
                optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        hvd.broadcast_optimizer_state(optimizer, root_rank=root, model=model)
        state = hvd.allgather_object((model.state_dict(), optimizer.state_dict()))
        for weights, optimizer_state in state:
            assert all(torch.equal(weights[key], state[root][0][key]) for key in weights)
            assert optimizer_state["param_groups"] == state[root][1]["param_groups"], optimizer_state
            assert repr(optimizer_state["state"]) == repr(state[root][1]["state"])
        assert optimizer.param_groups[0]["lr"] == 0.1 * size
    hvd.broadcast_parameters(list(model.named_parameters()), root_rank=0)
    hvd.broadcast_parameters(list(model.parameters()), root_rank=0)
    expect_error(ValueError, "params must be", hvd.broadcast_parameters, 3, 0)
    expect_error(ValueError, "LBFGS", hvd.broadcast_optimizer_state,
                 torch.optim.LBFGS(model.parameters()), root_rank=0)


def case_the_place_in_the_job():
    rank, size = rank_and_size()
    places = hvd.allgather_object((hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()))
    sizes = {place[2]: place[1] for place in places}
    assert sum(sizes.values()) == size and len(sizes) == hvd.cross_size()
    assert hvd.is_homogeneous() == (len(set(sizes.values())) == 1)
    built = (hvd.mpi_built, hvd.mpi_enabled, hvd.mpi_threads_supported, hvd.gloo_built, hvd.gloo_enabled,
             hvd.nccl_built, hvd.ddl_built, hvd.ccl_built, hvd.rocm_built)
    assert not any(question() for question in built)
    assert hvd.cuda_built()


def case_leaving_and_joining_again():
    rank, size = rank_and_size()
    for _ in range(20):
        hvd.shutdown()
        assert not hvd.is_initialized()
        expect_error(ValueError, "not been initialized", hvd.rank)
        expect_error(ValueError, "not been initialized", hvd.allreduce, torch.ones(2))
        hvd.init()
        hvd.init()
        expect_equal(hvd.allreduce(torch.tensor([rank]), op=hvd.Sum), torch.tensor([size * (size - 1) // 2]))
    hvd.shutdown()
    hvd.init(comm=list(range(size)), process_sets="dynamic")
    hvd.shutdown()
    expect_error(ValueError, "communicator", hvd.init, comm=object())
    sets = [hvd.ProcessSet([0])] if size > 1 else []
    hvd.init(process_sets=sets)
    assert all(one.included() == (rank == 0) for one in sets)
