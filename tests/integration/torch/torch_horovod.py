"""Holds cases of torch_rank.py: where Horovod's own tests and its users' programs stumbled."""

import copy
import importlib
import io
import pickle
import warnings

import rueda.torch as hvd
import torch
from torch_support import expect_close, rank_and_size


def case_a_fresh_optimizer_has_gradients_once_its_state_was_broadcast():
    """A program may then clip or look at them before the first backward()."""
    for kind, is_sparse in ((torch.optim.SGD, False), (torch.optim.Adam, False), (torch.optim.SparseAdam, True)):
        for is_wrapped in (True, False):
            model = torch.nn.Linear(3, 2)
            model.bias.requires_grad_(False)
            optimizer = kind(model.parameters(), lr=0.1)
            if is_wrapped:
                optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            before = model.weight.detach().clone()
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            assert model.weight.grad.is_sparse == is_sparse and not model.weight.grad.to_dense().any(), kind
            assert model.bias.grad is None and torch.equal(model.weight, before), kind
    trained = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.grad = torch.ones(2, 3)
    trained.step()
    model.weight.grad = None
    hvd.broadcast_optimizer_state(trained, root_rank=0)
    assert model.weight.grad is None


def case_an_optimizer_knows_its_parameters_names():
    model = torch.nn.Linear(3, 2)
    for op in (hvd.Average, hvd.Adasum):
        plain = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
        assert {name: id(one) for one, name in optimizer._parameter_names.items()} == {
            name: id(one) for name, one in model.named_parameters()}, op
    more = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.add_param_group({"params": [more]})
    assert optimizer._parameter_names == {model.weight: "parameter.0", model.bias: "parameter.1", more: "parameter.2"}


def case_sparse_adam_takes_gradients_that_were_made_dense():
    rank, size = rank_and_size()
    results = []
    for sparse_as_dense in (True, False):
        torch.manual_seed(5)
        table = torch.nn.Embedding(6, 3, sparse=True)
        other = torch.nn.Embedding(4, 3, sparse=True)  # rank 0 alone uses it
        plain = torch.optim.SparseAdam([*table.parameters(), *other.parameters()], lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, [("table", table.weight), ("other", other.weight)],
                                             sparse_as_dense=sparse_as_dense)
        for step in range(3):
            optimizer.zero_grad()
            loss = table(torch.tensor([0, (rank + step) % 6])).sum()
            if rank == 0:
                loss = loss + other(torch.tensor([step])).sum()
            loss.backward()
            optimizer.step()
        results.append(torch.cat([table.weight, other.weight]).detach())
    everywhere = hvd.allgather(results[0].unsqueeze(0))
    assert all(torch.equal(one, results[0]) for one in everywhere)
    if size > 1:
        expect_close(results[0], results[1], 1e-6)


def case_a_scheduler_of_the_plain_optimizer_does_not_warn_of_steps_that_were_made():
    for op in (hvd.Average, hvd.Adasum):
        model = torch.nn.Linear(3, 2)
        plain = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()
                scheduler.step()
        assert abs(optimizer.param_groups[0]["lr"] - 0.01) < 1e-9


def case_a_schedulers_state_is_saved_and_an_optimizer_pickled():
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), model.named_parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    torch.save(scheduler.state_dict(), io.BytesIO())
    read = pickle.loads(pickle.dumps(optimizer))
    assert type(read) is torch.optim.SGD and read.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert len(read.state) == 2


def case_a_copy_of_an_optimizer_is_distributed_as_well():
    rank, size = rank_and_size()
    for arguments in ({}, {"groups": 1}, {"op": hvd.Adasum}):
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
                                             model.named_parameters(), **arguments)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        copied_model, copied = copy.deepcopy((model, optimizer))
        assert list(copied._parameter_names) == list(copied_model.parameters())
        for one_model, one in ((copied_model, copied), (model, optimizer)):
            one.zero_grad()
            (one_model(torch.ones(1, 3)).sum() * (rank + 1)).backward()
            one.step()
        assert torch.equal(copied_model.weight, model.weight), arguments
        everywhere = hvd.allgather(copied_model.weight.detach().unsqueeze(0))
        assert all(torch.equal(one, everywhere[0]) for one in everywhere), arguments


def case_horovods_modules_are_there():
    for name, member in (("rueda.torch.mpi_ops", "allreduce_async_"), ("rueda.torch.compression", "NoneCompressor"),
                         ("rueda.torch.functions", "broadcast_object"), ("rueda.torch.optimizer", "DistributedOptimizer"),
                         ("rueda.torch.sync_batch_norm", "SyncBatchNorm"), ("rueda.torch.elastic", "run"),
                         ("rueda.common.exceptions", "HostsUpdatedInterrupt"), ("rueda.common.process_sets", "ProcessSet")):
        module = importlib.import_module(name)
        assert hasattr(module, member) and all(hasattr(module, one) for one in module.__all__), name
        for one in set(module.__all__) & set(hvd.__all__):
            assert getattr(module, one) is getattr(hvd, one), (name, one)
    from rueda.common.process_sets import get_process_set_ids_and_ranks
    _, size = rank_and_size()
    assert get_process_set_ids_and_ranks() == {0: list(range(size))}
    if size > 1:
        added = hvd.add_process_set([0])
        assert get_process_set_ids_and_ranks() == {0: list(range(size)), added.process_set_id: [0]}
        assert hvd.remove_process_set(added)
