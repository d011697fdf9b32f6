"""Tests that DistributedDataParallel on Rueda learns what it learns on Gloo."""

import contextlib
import warnings

import torch
import torch.distributed as dist
from distributed_collectives import end, gloo  # noqa: F401
from torch.nn.parallel import DistributedDataParallel

import rueda
import rueda.distributed
from rueda.distributed import _buckets

STEPS = 50
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class Net(torch.nn.Module):
    """A network whose batch normalisation has buffers, which DDP sends round; the third layer is left out in some steps."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64)
        self.second, self.third, self.last = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)

    def forward(self, x, with_third=True):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x))
        return self.last(torch.relu(self.third(x)) if with_third else x)


def losses(group, dtype, step=None, hook=None, **options):
    """Returns the losses of a training's steps. step(model, number, loss_of) makes one of them."""
    torch.manual_seed(5)
    model = DistributedDataParallel(Net().to(dtype), process_group=group, bucket_cap_mb=0.01, **options)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_function = torch.nn.CrossEntropyLoss()
    torch.manual_seed(100 + dist.get_rank())
    found = []
    for number in range(STEPS):
        inputs, labels = torch.randn(16, 20, dtype=dtype), torch.randint(0, 3, (16,))

        def loss_of(*arguments):
            return loss_function(model(inputs, *arguments), labels)

        optimizer.zero_grad(set_to_none=number % 2 == 0)
        if step is None:
            loss = loss_of()
            loss.backward()
        else:
            loss = step(model, number, loss_of)
        optimizer.step()
        found.append(loss.detach().double())
    return torch.stack(found)


def expect_alike(dtype, step=None, tolerance=None, hook=None, **options):
    ours = losses(dist.group.WORLD, dtype, step, hook, **options)
    theirs = losses(gloo(), dtype, step, **options)
    difference = ((ours - theirs).abs() / theirs.abs()).max().item()
    assert difference <= (tolerance or TOLERANCE[dtype]), (dtype, options, difference)


def leave_some_out(model, number, loss_of):
    """Makes a step; in every third step the third layer has no gradients."""
    loss = loss_of(number % 3 != 0)
    loss.backward()
    return loss


def accumulate(model, number, loss_of):
    with model.no_sync():
        loss_of().backward()
    loss = loss_of()
    loss.backward()
    return loss


def case_plain():
    for dtype in TOLERANCE:
        expect_alike(dtype)


def case_bucket_views():
    expect_alike(torch.float64, gradient_as_bucket_view=True)


def case_static_graph():
    expect_alike(torch.float64, static_graph=True)


def case_unused_parameters():
    expect_alike(torch.float64, leave_some_out, find_unused_parameters=True)


def case_accumulation():
    expect_alike(torch.float64, accumulate)


def case_arena_hook():
    hook = rueda.distributed.arena_hook
    for dtype in TOLERANCE:
        expect_alike(dtype, hook=hook)
        expect_alike(dtype, hook=hook, gradient_as_bucket_view=True)
    expect_alike(torch.float64, hook=hook, gradient_as_bucket_view=True, static_graph=True)


def case_arena_hook_with_views_and_unused_parameters():
    expect_alike(torch.float64, leave_some_out, hook=rueda.distributed.arena_hook, gradient_as_bucket_view=True,
                 find_unused_parameters=True)


def case_arena_hook_with_views_and_accumulation():
    expect_alike(torch.float64, accumulate, hook=rueda.distributed.arena_hook, gradient_as_bucket_view=True)


def copied_by(model):
    """Returns the bytes that librueda copies in a step, once DDP has its buckets."""
    for _ in range(3):
        before = rueda.stats()
        model(torch.ones(2, 300)).sum().backward()
        after = rueda.stats()
    return after.bytes_copied_in - before.bytes_copied_in + after.bytes_copied_out - before.bytes_copied_out


def case_buckets_are_of_the_arena():
    """Buckets are in the arena from their allocation on, before and after DDP makes them anew: librueda copies nothing, with a
    hook or without, and with views of buckets DDP does not either."""
    for hook in (None, rueda.distributed.arena_hook, rueda.distributed.bf16_wire_hook):
        for has_views in (False, True):
            module = torch.nn.Linear(300, 300)
            model = DistributedDataParallel(module, gradient_as_bucket_view=has_views)
            if hook is not None:
                model.register_comm_hook(None, hook)
            assert copied_by(model) == 0, (hook, has_views)
            memory = {parameter.grad.data_ptr() for parameter in module.parameters()}
            model(torch.ones(2, 300)).sum().backward()
            assert memory == {parameter.grad.data_ptr() for parameter in module.parameters()}


def case_what_the_hook_returns_is_the_bucket():
    """So DDP does not copy it, either, and gradients are views of it."""
    seen = []

    def watch(group, bucket):
        future = rueda.distributed.arena_hook(group, bucket)
        address = bucket.buffer().data_ptr()
        future.then(lambda done: seen.append((address, done.value().data_ptr())))
        return future

    module = torch.nn.Linear(300, 300)
    model = DistributedDataParallel(module, gradient_as_bucket_view=True)
    model.register_comm_hook(None, watch)
    assert copied_by(model) == 0
    buffer, result = seen[-1]
    assert buffer == result
    assert buffer in (module.weight.grad.data_ptr(), module.bias.grad.data_ptr())


@contextlib.contextmanager
def arena_asked(answer):
    """Makes the buckets' allocator in the arena `answer` for a while."""
    given, _buckets.result_of = _buckets.result_of, answer
    try:
        yield
    finally:
        _buckets.result_of = given


def case_buckets_of_other_groups_are_ordinary():
    asked = []
    with arena_asked(lambda shape, dtype: asked.append(shape)):
        DistributedDataParallel(torch.nn.Linear(300, 300), process_group=gloo())
    assert not asked


def case_buckets_without_shared_memory_are_copied():
    """A full arena is a warning, and DDP goes on."""
    def refuse(shape, dtype):
        raise rueda.RuedaError(-1, "no memory")

    with arena_asked(refuse), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert copied_by(DistributedDataParallel(torch.nn.Linear(300, 300))) > 0
    assert any("not in shared memory" in str(one.message) for one in caught), caught


def case_compression_hooks():
    for hook, tolerance in ((rueda.distributed.fp16_wire_hook, 2e-2), (rueda.distributed.bf16_wire_hook, 1e-1)):
        expect_alike(torch.float32, hook=hook, tolerance=tolerance)
        expect_alike(torch.float64, hook=hook)


def case_own_hook():
    """A hook that calls torch.distributed itself."""
    def hook(group, bucket):
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), group=group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    expect_alike(torch.float64, hook=hook)


def case_uneven_inputs():
    """Ranks with more batches than others go on: join()."""
    results = []
    for group in (dist.group.WORLD, gloo()):
        torch.manual_seed(7)
        model = DistributedDataParallel(torch.nn.Linear(6, 2).double(), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(dist.get_rank())
        with model.join():
            for _ in range(5 + 3 * dist.get_rank()):
                optimizer.zero_grad()
                model(torch.randn(4, 6, dtype=torch.float64)).square().sum().backward()
                optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert (results[0] - results[1]).abs().max().item() < 1e-9


def case_complex_parameters():
    class Waves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3, 2), 1 + 1j, dtype=torch.complex64))

        def forward(self, x):
            return (x.to(torch.complex64) @ self.weight).abs().sum()

    rank, size = dist.get_rank(), dist.get_world_size()
    for views in (False, True):
        model = DistributedDataParallel(Waves(), gradient_as_bucket_view=views)
        model(torch.full((1, 3), rank + 1.0)).backward()
        alone = Waves()
        gradient = 0
        for other in range(size):
            alone.zero_grad()
            alone(torch.full((1, 3), other + 1.0)).backward()
            gradient = gradient + alone.weight.grad / size
        found = model.module.weight.grad
        assert found.is_complex() and (found - gradient).abs().max() < 1e-5, (views, found, gradient)


def case_mixed_precision():
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.full((2, 8), 1.0 + dist.get_rank())).float().sum()
    loss.backward()
    mean = torch.full((8, 8), 2.0 * sum(1.0 + rank for rank in range(dist.get_world_size())) / dist.get_world_size())
    assert torch.equal(model.module.weight.grad, mean), model.module.weight.grad
