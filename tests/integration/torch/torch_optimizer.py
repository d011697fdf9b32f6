"""Holds cases of torch_rank.py: DistributedOptimizer against one process that has all the data."""

import contextlib
import os
import warnings

import rueda
import rueda.torch as hvd
import torch
from torch_support import expect_close, expect_error, rank_and_size

ROWS = 6  # the rows of each rank


@contextlib.contextmanager
def switched(**variables):
    for name, value in variables.items():
        os.environ[name] = value
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def make_model(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 4), torch.nn.Tanh(),
                               torch.nn.Linear(4, 2)).double()


def batch(step, rank, size):
    """Returns all ranks' rows, and this one's."""
    torch.manual_seed(100 + step)
    whole = torch.randn(size * ROWS, 5, dtype=torch.float64)
    return whole, whole[rank * ROWS:(rank + 1) * ROWS]


def loss_of(model, rows):
    return (model(rows) ** 2).mean() + model(rows).mean()


def train_alone(make_optimizer, steps, seed=3):
    _, size = rank_and_size()
    model = make_model(seed)
    optimizer = make_optimizer(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, 0, size)[0]).backward()
        optimizer.step()
    return model


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def train_together(make_optimizer, steps, tolerance=1e-10, **arguments):
    """Trains on each rank's rows, and expects the weights of one process."""
    rank, size = rank_and_size()
    model = make_model(seed=50 + rank)
    for expected, parameter in zip(make_model().parameters(), model.parameters()):
        if rank == 0:
            parameter.data.copy_(expected)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    groups = arguments.get("groups")
    if callable(groups):
        arguments["groups"] = groups(model)
    optimizer = hvd.DistributedOptimizer(make_optimizer(model.parameters()),
                                         named_parameters=model.named_parameters(), **arguments)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, rank, size)[1]).backward()
        optimizer.step()
    for found, expected in zip(model.parameters(), train_alone(make_optimizer, steps).parameters()):
        expect_close(found.detach(), expected.detach(), tolerance, arguments)
    return model, optimizer


def case_it_trains_as_one_process_would():
    train_together(sgd, 5)
    train_together(lambda parameters: torch.optim.Adam(parameters, lr=0.01), 5)
    train_together(sgd, 3, gradient_predivide_factor=4.0)
    train_together(sgd, 3, groups=2)
    train_together(sgd, 3, num_groups=100)
    train_together(sgd, 3, groups=lambda model: [list(model[0].parameters()), [model[4].weight]])
    train_together(sgd, 2, tolerance=3e-3, compression=hvd.Compression.fp16)
    train_together(sgd, 2, tolerance=3e-2, compression=hvd.Compression.bf16)
    train_together(sgd, 2, tolerance=3e-3, compression=hvd.Compression.fp16, groups=2)


def case_every_switch_gives_the_same():
    for zero_copy in "01":
        for overlap in "01":
            for when_ready in "01":
                with switched(RUEDA_TORCH_ZERO_COPY=zero_copy, RUEDA_TORCH_OVERLAP=overlap,
                              RUEDA_TORCH_STEP_WHEN_READY=when_ready):
                    train_together(sgd, 3)
    with switched(RUEDA_TORCH_OVERLAP="yes"):
        expect_error(ValueError, "RUEDA_TORCH_OVERLAP='yes' must be 0 or 1", hvd.DistributedOptimizer,
                     sgd(make_model().parameters()))


def case_gradients_are_not_copied():
    rank, size = rank_and_size()
    if size == 1:
        return
    model, optimizer = train_together(sgd, 2)
    for set_to_none in (False, True):
        optimizer.zero_grad(set_to_none=set_to_none)
        before = rueda.stats()
        addresses = [parameter.grad.data_ptr() for parameter in model.parameters()]
        for step in range(3):
            loss_of(model, batch(step, rank, size)[1]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
        after = rueda.stats()
        assert after.bytes_copied_in == before.bytes_copied_in and after.bytes_copied_out == before.bytes_copied_out
        assert after.submissions - before.submissions == 3 * 6
        assert not any(parameter.grad.any() for parameter in model.parameters())
        assert addresses == [parameter.grad.data_ptr() for parameter in model.parameters()]
    # With the switch off gradients are copied, and the counter says so.
    with switched(RUEDA_TORCH_ZERO_COPY="0"):
        before = rueda.stats()
        train_together(sgd, 1)
        elements = sum(parameter.numel() for parameter in model.parameters())
        assert rueda.stats().bytes_copied_in - before.bytes_copied_in >= 8 * elements


def case_compressed_gradients_are_not_copied():
    """float32 is rounded where it crosses the network, and nowhere else. The mean is no number of the wire's, for whichever number of
    ranks but 10: of thirds, that of two ranks on two nodes was a half, and looked as if nothing had been rounded."""
    rank, size = rank_and_size()
    if size == 1:
        return
    for compression, digits in ((hvd.Compression.fp16, 11), (hvd.Compression.bf16, 8)):
        layer = torch.nn.Linear(50, 40, bias=False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), compression=compression,
                                             named_parameters=layer.named_parameters())
        for step in range(3):
            optimizer.zero_grad()
            before = rueda.stats()
            (layer.weight.sum() * ((rank + 1) / 11)).backward()
            optimizer.synchronize()
            after = rueda.stats()
            assert after.bytes_copied_in == before.bytes_copied_in
            mean = torch.full((40, 50), (size + 1) / 22)
            expect_close(layer.weight.grad, mean, 2.0 ** -digits * size)
            assert (layer.weight.grad == layer.weight.grad[0, 0]).all()
            is_rounded = (layer.weight.grad - mean).abs().max().item() > 2.0 ** -20
            assert is_rounded == (hvd.cross_size() > 1), layer.weight.grad
            with optimizer.skip_synchronize():
                optimizer.step()


def case_gradients_that_were_set_to_none_or_replaced():
    rank, size = rank_and_size()
    model, optimizer = train_together(sgd, 1)
    reference = make_model()
    reference.load_state_dict(model.state_dict())
    for step, change in enumerate((lambda grad: None, lambda grad: torch.zeros_like(grad))):
        for parameter in model.parameters():
            parameter.grad = change(parameter.grad)
        loss_of(model, batch(step, rank, size)[1]).backward()
        optimizer.synchronize()
        reference.zero_grad(set_to_none=True)
        loss_of(reference, batch(step, 0, size)[0]).backward()
        for found, expected in zip(model.parameters(), reference.parameters()):
            expect_close(found.grad, expected.grad, 1e-12)
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.load_state_dict(model.state_dict())


def case_accumulation_over_passes():
    rank, size = rank_and_size()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         named_parameters=model.named_parameters(), backward_passes_per_step=2)
    reference = make_model()
    for parts in (2, 3):
        optimizer.set_backward_passes_per_step(parts)
        optimizer.zero_grad()
        reference.zero_grad()
        for step in range(parts):
            whole, own = batch(step, rank, size)
            loss_of(model, own).backward()
            loss_of(reference, whole).backward()
        optimizer.synchronize()
        for found, expected in zip(model.parameters(), reference.parameters()):
            expect_close(found.grad, expected.grad, 1e-12)
        optimizer.zero_grad()
        with optimizer.skip_synchronize():
            optimizer.step()
    if size == 1:
        return
    optimizer.set_backward_passes_per_step(1)
    loss_of(model, own).backward()
    expect_error(AssertionError, "more than backward_passes_per_step=1", loss_of(model, own).backward)
    expect_error(AssertionError, "zero_grad", optimizer.zero_grad)
    optimizer.synchronize()
    optimizer.zero_grad()
    expect_error(ValueError, "must be > 0", optimizer.set_backward_passes_per_step, 0)


def case_clipping_between_synchronize_and_step():
    rank, size = rank_and_size()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         named_parameters=model.named_parameters())
    reference = make_model()
    loss_of(model, batch(0, rank, size)[1]).backward()
    loss_of(reference, batch(0, rank, size)[0]).backward()
    optimizer.synchronize()
    norms = [float(torch.nn.utils.clip_grad_norm_(one.parameters(), 0.01)) for one in (model, reference)]
    assert abs(norms[0] - norms[1]) < 1e-12, norms
    with optimizer.skip_synchronize():
        optimizer.step()
    torch.optim.SGD(reference.parameters(), lr=1.0).step()
    for found, expected in zip(model.parameters(), reference.parameters()):
        expect_close(found.detach(), expected.detach(), 1e-12)
    loss_of(model, batch(0, rank, size)[1]).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(one.message) for one in caught)


def case_parameters_without_a_gradient_here():
    """Only some ranks take the branch; the others contribute zeros."""
    rank, size = rank_and_size()
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    model = torch.nn.ModuleList([first, second])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = None
        (first if rank % 2 else second)(torch.ones(1, 2)).sum().backward()
        optimizer.synchronize()
        odd = sum(other % 2 for other in range(size))
        if size > 1:
            expect_close(first.weight.grad, torch.full((2, 2), odd / size), 1e-6)
            expect_close(second.weight.grad, torch.full((2, 2), (size - odd) / size), 1e-6)
        with optimizer.skip_synchronize():
            optimizer.step()


def case_parameters_that_are_frozen_and_freed_shared_or_of_other_dtypes():
    rank, size = rank_and_size()
    shared = torch.nn.Linear(3, 3)
    frozen = torch.nn.Linear(3, 3)
    half = torch.nn.Linear(3, 3).to(torch.bfloat16)
    single = torch.nn.Parameter(torch.tensor(2.0))  # has no dimensions
    nothing = torch.nn.Parameter(torch.zeros(0, 3))
    model = torch.nn.ModuleList([shared, shared, frozen, half])
    model.register_parameter("single", single)
    model.register_parameter("nothing", nothing)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    frozen.weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters(), groups=2)
    rows = torch.ones(1, 3) * (rank + 1)
    before = frozen.weight.detach().clone()
    for step in range(4):
        if step == 2:
            frozen.weight.requires_grad_(True)
            shared.bias.requires_grad_(False)
        optimizer.zero_grad()
        result = shared(shared(rows)).sum() * single + frozen(rows).sum() + nothing.sum()
        (result + half(rows.to(torch.bfloat16)).sum().float()).backward()
        optimizer.synchronize()
        mean = (size + 1) / 2
        if step >= 2:
            expect_close(frozen.weight.grad, torch.full((3, 3), mean), 1e-6)
        elif frozen.weight.grad is not None:
            assert not frozen.weight.grad.any()
        assert half.weight.grad.dtype == torch.bfloat16
        expect_close(half.weight.grad, torch.full((3, 3), mean), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        if step == 1:
            assert torch.equal(frozen.weight, before)
    weights = hvd.allgather_object({key: value.float() for key, value in model.state_dict().items()})
    assert all(torch.equal(one[key], weights[0][key]) for one in weights for key in one)


def case_sparse_gradients():
    rank, size = rank_and_size()
    for as_dense in (False, True):
        torch.manual_seed(1)
        embedding, layer = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1)
        model = torch.nn.Sequential(embedding, layer)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), sparse_as_dense=as_dense,
                                             named_parameters=model.named_parameters())
        start = embedding.weight.detach().clone()
        for _ in range(2):
            optimizer.zero_grad()
            embedding(torch.tensor([rank, 9])).sum().backward()
            optimizer.synchronize()
            expected = torch.zeros(10, 3)
            expected[:size] = 1 / size
            expected[9] = 1
            grad = embedding.weight.grad
            assert grad.is_sparse != as_dense or size == 1
            expect_close(grad.to_dense() if grad.is_sparse else grad, expected, 1e-6)
            with optimizer.skip_synchronize():
                optimizer.step()
        expect_close(embedding.weight.detach(), start - 0.2 * expected, 1e-5)
        # Only some ranks compute the gradient.
        embedding.weight.grad = None
        if rank % 2 == 0:
            embedding(torch.tensor([9])).sum().backward()
        optimizer.synchronize()
        if size > 1:
            grad = embedding.weight.grad.to_dense() if embedding.weight.grad.is_sparse else embedding.weight.grad
            even = (size + 1) // 2
            expect_close(grad[9], torch.full((3,), even / size), 1e-6)
            assert not grad[:9].any()


def case_process_sets():
    rank, size = rank_and_size()
    if size < 3:
        return
    chosen = hvd.add_process_set([0, size - 1])
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum,
                                         named_parameters=model.named_parameters(), process_set=chosen)
    model(torch.full((1, 2), rank + 1.0)).sum().backward()
    optimizer.synchronize()
    expected = 1.0 + size if chosen.included() else rank + 1.0
    expect_close(model.weight.grad, torch.full((1, 2), expected), 1e-6)
    with optimizer.skip_synchronize():
        optimizer.step()
    hvd.barrier()
    hvd.remove_process_set(chosen)


def case_it_is_the_optimizer_that_it_wraps():
    rank, size = rank_and_size()
    model = make_model()
    inner = torch.optim.Adam(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    assert isinstance(optimizer, torch.optim.Adam) and type(optimizer).__name__ == "Adam"
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    loss_of(model, batch(0, rank, size)[1]).backward()
    optimizer.step()
    scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.05) < 1e-9
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    extra = torch.nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [extra]})
    optimizer.zero_grad()
    (loss_of(model, batch(0, rank, size)[1]) + (extra * (rank + 1)).sum()).backward()
    optimizer.synchronize()
    expect_close(extra.grad, torch.full((2,), (size + 1) / 2), 1e-6)
    with optimizer.skip_synchronize():
        loss = optimizer.step(lambda: 42.0)
    assert loss == 42.0


def case_what_is_refused():
    model = make_model()
    optimizer = sgd(model.parameters())
    named = list(model.named_parameters())
    wrap = hvd.DistributedOptimizer
    expect_error(ValueError, "must be unique.*0.weight", wrap, optimizer, named_parameters=named + named[:1])
    expect_error(ValueError, "not named", wrap, optimizer, named_parameters=named[1:])
    expect_error(ValueError, "sequence of tuples", wrap, optimizer, named_parameters=list(model.parameters()))
    expect_error(ValueError, "backward_passes_per_step", wrap, optimizer, backward_passes_per_step=0)
    expect_error(ValueError, "gradient_predivide_factor", wrap, optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)
    expect_error(ValueError, "groups should be", wrap, optimizer, groups=-1)
    expect_error(ValueError, "groups must consist", wrap, optimizer, groups=[[1]])
    expect_error(ValueError, "only appear once", wrap, optimizer, groups=[[named[0][1]], [named[0][1]]])
    expect_error(ValueError, "gradient_predivide_factor", wrap, optimizer, op=hvd.Adasum, gradient_predivide_factor=2.0)
    with_adasum = wrap(sgd(model.parameters()), op=hvd.Adasum)
    expect_error(AssertionError, "not supported when using Adasum", with_adasum.skip_synchronize().__enter__)


def adasum_of(row):
    """Returns Adasum as the paper defines it, of flat float64 tensors; a row of them is halved again and again."""
    if len(row) == 1:
        return row[0]
    middle = (len(row) + 1) // 2
    a, b = adasum_of(row[:middle]), adasum_of(row[middle:])
    if not a.any() or not b.any():
        return a + b
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


def case_adasum_reduces_what_each_ranks_step_changes():
    """The result is compared with all ranks' steps made here; the optimizer has a state, and accumulates over two passes."""
    rank, size = rank_and_size()
    for compression, tolerance in ((hvd.Compression.none, 1e-12), (hvd.Compression.fp16, 2e-3)):
        models = [make_model() for _ in range(size)]  # stand for what each rank would have
        optimizers = [torch.optim.Adam(one.parameters(), lr=0.05) for one in models]
        mine = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam(mine.parameters(), lr=0.05), mine.named_parameters(),
                                             compression, backward_passes_per_step=2, op=hvd.Adasum)
        for step in range(3):
            before = [p.detach().clone() for p in models[0].parameters()]
            for other, (model, own) in enumerate(zip(models, optimizers)):
                own.zero_grad()
                for half in range(2):
                    loss_of(model, batch(2 * step + half, other, size)[1]).backward()
                own.step()
            changes = zip(*([p.detach() - start for p, start in zip(model.parameters(), before)] for model in models))
            for number, (start, row) in enumerate(zip(before, changes)):
                # Ranks of a node stand next to each other, and all nodes have the same number.
                after = start + adasum_of([one.flatten() for one in row]).view_as(start)
                for model in models:
                    list(model.parameters())[number].detach().copy_(after)
            optimizer.zero_grad()
            for half in range(2):
                loss_of(mine, batch(2 * step + half, rank, size)[1]).backward()
            optimizer.step()
            for found, expected in zip(mine.parameters(), models[0].parameters()):
                expect_close(found, expected, tolerance)
            for model in models:  # rounds from here on as the daemon does
                model.load_state_dict(mine.state_dict())


def case_adasum_leaves_parameters_as_they_were_when_it_fails():
    rank, size = rank_and_size()
    if size == 1:
        return
    model = torch.nn.Linear(2 + (rank == 0), 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(),
                                         op=hvd.Adasum)
    model(torch.ones(1, 2 + (rank == 0))).sum().backward()
    expect_error(hvd.HorovodInternalError, "shape", optimizer.step)
    assert torch.equal(model.weight, before)


def case_it_goes_on_after_an_error_and_in_another_session():
    rank, size = rank_and_size()
    if size == 1:
        return
    model = torch.nn.Linear(2 + (rank == 0), 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    model(torch.ones(1, 2 + (rank == 0))).sum().backward()
    expect_error(hvd.HorovodInternalError, "shape", optimizer.step)
    model, optimizer = train_together(sgd, 1)
    hvd.shutdown()
    hvd.init()
    optimizer.zero_grad()
    for step in range(2):
        loss_of(model, batch(step, rank, size)[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = hvd.allgather_object(model.state_dict())
    assert all(torch.equal(one[key], weights[0][key]) for one in weights for key in one)
