"""Holds cases of torch_rank.py: what passes through collectives backwards, sparse tensors, and normalisation over all ranks."""

import itertools

import rueda.torch as hvd
import torch
from torch_support import expect_close, expect_equal, expect_error, rank_and_size


def leaf(*shape, dtype=torch.float64, value=1.0):
    return torch.full(shape, value, dtype=dtype).requires_grad_()


def case_of_allreduce():
    rank, size = rank_and_size()
    weights = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) * (rank + 1)
    total = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) * (size * (size + 1) / 2)
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, size)):
        tensor = leaf(2, 3)
        hvd.allreduce(tensor, op=op, name="gradient").backward(weights)
        expect_close(tensor.grad, total / divisor, 1e-12)
        tensor = leaf(2, 3)
        hvd.allreduce(tensor * 2, op=op, prescale_factor=0.5, postscale_factor=3.0).backward(weights)
        expect_close(tensor.grad, total / divisor * 3, 1e-12)
    first, second = leaf(2, 3), leaf(2, 3)
    results = hvd.grouped_allreduce([first, second], op=hvd.Sum)
    torch.autograd.backward(results, [weights, 2 * weights])
    expect_close(first.grad, total, 1e-12)
    expect_close(second.grad, 2 * total, 1e-12)
    tensor = leaf(3, dtype=torch.float32)
    hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    expect_equal(tensor.grad, torch.full((3,), float(size)))
    tensor = leaf(3)
    expect_error(NotImplementedError, "Sum and Average", hvd.allreduce(tensor, op=hvd.Max).sum().backward)


def case_of_a_second_derivative():
    _, size = rank_and_size()
    tensor = leaf(2, value=3.0)
    first, = torch.autograd.grad((hvd.allreduce(tensor, op=hvd.Sum) ** 3).sum(), tensor, create_graph=True)
    second, = torch.autograd.grad(first.sum(), tensor)
    # The function is f = (n x)^3 on each of n ranks, whose gradients are added up twice.
    expect_close(second, torch.full((2,), 6.0 * 3 * size * size * size, dtype=torch.float64), 1e-9)


def case_of_allgather_and_broadcast():
    rank, size = rank_and_size()
    rows = [1 + other for other in range(size)]
    tensor = leaf(rows[rank], 2)
    gathered = hvd.allgather(tensor, name="rows")
    gathered.backward(torch.cat([torch.full((count, 2), other * 1.0) for other, count in enumerate(rows)]) * (rank + 1))
    expect_close(tensor.grad, torch.full((rows[rank], 2), rank * (size + 1) / 2), 1e-12)
    first, second = leaf(rank, 2), leaf(2)
    results = hvd.grouped_allgather([first, second])
    torch.autograd.backward(results, [torch.ones_like(result) * (rank + 1) for result in results])
    expect_close(first.grad, torch.full((rank, 2), (size + 1) / 2), 1e-12) if rank else None
    expect_close(second.grad, torch.full((2,), (size + 1) / 2), 1e-12)
    tensor = leaf(3)
    hvd.broadcast(tensor, size - 1).backward(torch.full((3,), rank + 1.0, dtype=torch.float64))
    expected = (size + 1) / 2 if rank == size - 1 else 0.0
    expect_close(tensor.grad, torch.full((3,), expected), 1e-12)


def case_of_alltoall_and_reducescatter():
    rank, size = rank_and_size()
    tensor = leaf(sum(range(size)) + 1, 2)
    output, received = hvd.alltoall(tensor, list(range(size)))
    output.backward(torch.full_like(output, rank + 1.0))
    expected = [float(target + 1) for target in range(size) for _ in range(target)] + [0.0]
    expect_close(tensor.grad, torch.tensor(expected).unsqueeze(1).expand(-1, 2), 1e-12)
    tensor = leaf(size)
    hvd.alltoall(tensor).sum().backward()
    expect_close(tensor.grad, torch.ones(size), 1e-12)
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):  # Horovod's scale
        tensor = leaf(2 * size)
        part = hvd.reducescatter(tensor, op=op, prescale_factor=0.5)
        part.backward(torch.full_like(part, rank + 1.0))
        expected = torch.arange(1.0, size + 1).repeat_interleave(2) * factor / 2
        expect_close(tensor.grad, expected, 1e-12)
        tensor = leaf(size)
        hvd.grouped_reducescatter([tensor, tensor * 2], op=op)[1].sum().backward()
        expect_close(tensor.grad, torch.full((size,), 2.0 * factor), 1e-12)


def case_sparse_tensors():
    rank, size = rank_and_size()
    for op, dtype in itertools.product((hvd.Sum, hvd.Average), (torch.float32, torch.float64)):
        dense = torch.zeros(size + 2, 3, dtype=dtype)
        dense[rank] = rank + 1
        dense[size] = 1
        total = torch.zeros(size + 2, 3, dtype=dtype)
        for other in range(size):
            total[other] = other + 1
        total[size] = size
        handle = hvd.sparse_allreduce_async(dense.to_sparse(1), name="sparse", op=op)
        while not hvd.poll(handle):
            pass
        result = hvd.synchronize(handle)
        assert result.is_sparse
        expect_close(result.to_dense(), total / (size if op == hvd.Average else 1), 1e-6)
    nothing = torch.zeros(4, 2).to_sparse()
    expect_equal(hvd.sparse_allreduce_async(nothing, name="nothing", op=hvd.Sum)().to_dense(), torch.zeros(4, 2))
    expect_error(ValueError, "sparse COO", hvd.sparse_allreduce_async, torch.ones(2), name="dense", op=hvd.Sum)
    expect_error(ValueError, "Sum or Average", hvd.sparse_allreduce_async, nothing, name="max", op=hvd.Max)


def normalized(module, values):
    values = values.clone().requires_grad_()
    result = module(values)
    (result * torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).sin()).sum().backward()
    return result.detach(), values.grad


def case_batch_normalisation_over_all_ranks():
    """It equals one process's over the whole batch, forward, backward and in the statistics."""
    rank, size = rank_and_size()
    for shape, options in (((3,), {}), ((3, 4), {"momentum": None}), ((3, 2, 2), {"affine": False})):
        torch.manual_seed(5)
        counts = [2 + other for other in range(size)]
        whole = torch.randn(sum(counts), *shape, dtype=torch.float64) * 3 + 100
        own = slice(sum(counts[:rank]), sum(counts[:rank + 1]))
        kind = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)]
        expected, module = kind(3, **options).double(), hvd.SyncBatchNorm(3, **options).double()
        weights = torch.randn(whole.shape, dtype=torch.float64)
        for _ in range(2):
            values = whole.clone().requires_grad_()
            wanted = expected(values)
            (wanted * weights).sum().backward()
            mine = whole[own].clone().requires_grad_()
            found = module(mine)
            (found * weights[own]).sum().backward()
            expect_close(found, wanted[own], 1e-8)
            expect_close(mine.grad, values.grad[own], 1e-8)
        expect_close(module.running_mean, expected.running_mean, 1e-10)
        expect_close(module.running_var, expected.running_var, 1e-8)
        assert module.num_batches_tracked == expected.num_batches_tracked
        if module.affine:
            expect_close(hvd.allreduce(module.weight.grad, op=hvd.Sum), expected.weight.grad, 1e-8)
            expect_close(hvd.allreduce(module.bias.grad, op=hvd.Sum), expected.bias.grad, 1e-8)
        module.eval()
        expected.eval()
        expect_close(module(whole[own]), expected(whole[own]), 1e-8)
    expect_error(ValueError, "at least 2D", hvd.SyncBatchNorm(3), torch.ones(3))
    half = hvd.SyncBatchNorm(3)(torch.randn(4, 3, requires_grad=True))
    assert half.dtype == torch.float32
