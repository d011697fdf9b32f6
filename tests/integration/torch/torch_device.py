"""Tests rueda.torch with tensors in a GPU's memory."""

import warnings

import rueda
import rueda.torch as hvd
import torch
from torch_on_gpu import CUDA
from torch_support import expect_equal, expect_error, rank_and_size

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def values(dtype, seed, count=1000):
    generator = torch.Generator().manual_seed(100 * seed + hvd.rank())
    if dtype.is_floating_point:
        return torch.randint(-8, 8, (count,), generator=generator).to(dtype)  # sums are exact in every dtype
    return torch.randint(0, 5, (count,), generator=generator, dtype=dtype)


def read(tensor):
    """Returns what is in the tensor when the stream has come so far."""
    return CUDA.to_host(tensor)


def is_on_gpu(tensor):
    return CUDA.find(tensor) is not None


def case_allreduce_gives_what_it_gives_on_the_host():
    for seed, dtype in enumerate(DTYPES):
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            host = values(dtype, seed)
            if op == hvd.Product:
                host = host.double().clamp(-1, 1).to(dtype)
            wanted = hvd.allreduce(host, op=op, name="host")
            given = CUDA.put(host)
            result = hvd.allreduce(given, op=op, name="device")
            assert is_on_gpu(result)
            expect_equal(read(result), wanted)
            expect_equal(read(given), host)
            assert hvd.allreduce_(given, op=op, name="in place") is given
            expect_equal(read(given), wanted)


def case_the_host_does_not_wait_and_the_stream_does():
    rank, size = rank_and_size()
    before = rueda.device_stats().stream_waits
    for step in range(5):
        gradient = CUDA.put(torch.full((1000,), float(rank)))
        CUDA.gate.stop(CUDA.stream)  # what computes the gradient
        handle = hvd.allreduce_async_(gradient, op=hvd.Sum, name=f"late{step % 2}")
        assert not hvd.poll(handle)
        assert hvd.synchronize(handle) is gradient  # this thread goes on
        assert not CUDA.gpu.is_idle(CUDA.stream)
        CUDA.gate.open()
        expect_equal(read(gradient), torch.full((1000,), float(size * (size - 1) // 2)))
    assert rueda.device_stats().stream_waits == before + 5


def case_many_results_that_nobody_looks_at():
    """Memory and names of operations that a stream was left to wait for are released."""
    for step in range(200):
        hvd.allreduce_(CUDA.put(torch.ones(10)), op=hvd.Sum, name="again")
    CUDA.synchronize()


def case_groups():
    rank, size = rank_and_size()
    total = size * (size + 1) / 2
    given = [CUDA.put(torch.full((count,), rank + 1.0)) for count in (1, 100, 10_000)]
    for result in hvd.grouped_allreduce(given, op=hvd.Sum, name="new"):
        assert is_on_gpu(result) and bool((read(result) == total).all())
    for _ in range(2):
        again = hvd.grouped_allreduce_(given, op=hvd.Average, name="in place")
        assert [one.data_ptr() for one in again] == [one.data_ptr() for one in given]
    expect_equal(read(given[1]), torch.full((100,), (size + 1) / 2))
    expect_error(ValueError, "one group are on", hvd.grouped_allreduce, [given[0], torch.ones(3)])


def case_broadcasts():
    rank, size = rank_and_size()
    for root in range(size):
        for dtype in (torch.float32, torch.int64, torch.complex64):
            given = CUDA.put(torch.full((50,), rank, dtype=dtype))
            result = hvd.broadcast(given, root, name="new")
            assert is_on_gpu(result)
            expect_equal(read(result), torch.full((50,), root, dtype=dtype))
            hvd.broadcast_(given, root, name="in place")
            expect_equal(read(given), torch.full((50,), root, dtype=dtype))


def case_all_others_go_through_the_host_and_say_so():
    rank, size = rank_and_size()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gathered = hvd.allgather(CUDA.put(torch.full((rank + 1, 2), float(rank))), name="g")
        expect_equal(read(gathered), torch.cat([torch.full((one + 1, 2), float(one)) for one in range(size)]))
        exchanged = hvd.alltoall(CUDA.put(torch.full((size,), rank)), name="a")
        expect_equal(read(exchanged), torch.arange(size))
        part = hvd.reducescatter(CUDA.put(torch.full((size, 3), rank + 1.0)), op=hvd.Sum, name="r")
        expect_equal(read(part), torch.full((1, 3), size * (size + 1) / 2))
        same = hvd.allreduce(CUDA.put(torch.full((8,), 3.0)), op=hvd.Adasum, name="s")
        assert bool((read(same) - 3.0).abs().max() < 1e-5)
        in_place = CUDA.put(torch.full((8,), 3.0))
        hvd.allreduce_(in_place, op=hvd.Adasum, name="s")
        assert bool((read(in_place) - 3.0).abs().max() < 1e-5)
        hvd.allgather(CUDA.put(torch.ones(1)), name="g")
    assert all(is_on_gpu(one) for one in (gathered, exchanged, part, same))
    told = [str(one.message) for one in caught if "GPU" in str(one.message)]
    assert len(told) == 4, told  # once for each collective


def case_gradients_of_collectives():
    rank, size = rank_and_size()
    given = CUDA.put(torch.full((4,), rank + 1.0)).requires_grad_()
    weights = torch.arange(4.0)
    result = hvd.allreduce(given, op=hvd.Sum, name="x")
    CUDA.synchronize()
    (result * CUDA.put(weights)).sum().backward()
    expect_equal(read(given.grad), weights * size)


def train(put, steps=20, is_grouped=False):
    """Trains a model whose parameters and gradients are where `put` puts them."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
    for parameter in model.parameters():
        parameter.data = put(parameter.data)
        parameter.grad = put(torch.zeros_like(parameter))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                                         named_parameters=model.named_parameters(),
                                         groups=[list(model.parameters())] if is_grouped else None)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    CUDA.synchronize()
    generator = torch.Generator().manual_seed(hvd.rank())
    losses = []
    for _ in range(steps):
        rows = put(torch.randn(8, 6, generator=generator, dtype=torch.float64))
        optimizer.zero_grad(set_to_none=False)
        loss = (model(rows) - rows[:, :2]).square().mean()
        loss.backward()
        optimizer.synchronize()
        CUDA.synchronize()  # for the fake one's sake: the CPU, which computes, is in no stream
        with optimizer.skip_synchronize():
            optimizer.step()
        losses.append(loss.item())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert all(is_on_gpu(parameter.grad) == (put is not torch.clone) for parameter in model.parameters())
    return torch.tensor(losses)


def case_an_optimizer_learns_what_it_learns_on_the_host():
    before = rueda.device_stats().submissions
    on_device = train(CUDA.put)
    assert rueda.device_stats().submissions > before
    on_host = train(torch.clone)
    assert (on_device - on_host).abs().max().item() < 1e-9, (on_device, on_host)
    assert on_host[-1] < on_host[0]


def case_a_step_on_the_gpu_is_declared():
    """The test looks for both plans in the daemons' logs."""
    train(CUDA.put, steps=3)
    train(CUDA.put, steps=3, is_grouped=True)


def case_segments_that_are_freed_and_come_again():
    """PyTorch's allocator is watched: the driver is hardly asked, and memory that comes at an old address is taken for new."""
    rank, size = rank_and_size()
    before = rueda.device_stats()
    for number in range(10):
        given = CUDA.put(torch.full((CUDA.SEGMENT,), float(rank + number)))
        for _ in range(4):
            hvd.allreduce_(given, op=hvd.Max, name="segment")
        assert bool((read(given) == size - 1 + number).all())
        CUDA.free_segments(given)
    after = rueda.device_stats()
    checks, hits = after.buffer_checks - before.buffer_checks, after.cache_hits - before.cache_hits
    assert hits >= 10 * 7, (hits, checks)
    if CUDA.has_watched_segments():
        assert checks <= 2, (hits, checks)  # one in 256
        assert after.recycled_addresses == before.recycled_addresses  # they were forgotten before they were freed
    else:
        assert checks >= hits, (hits, checks)


def case_leaving_with_streams_that_wait():
    """Operations in flight end first."""
    rank, size = rank_and_size()
    gradient = CUDA.put(torch.full((1000,), rank + 1.0))
    hvd.allreduce_(gradient, op=hvd.Sum, name="last")
    hvd.shutdown()
    expect_equal(read(gradient), torch.full((1000,), size * (size + 1) / 2))
    hvd.init()
