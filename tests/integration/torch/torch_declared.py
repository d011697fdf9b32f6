"""Holds cases of torch_rank.py: plans that rueda.torch declares by itself, from the graph of the first backward pass. Whatever the plan is
worth, gradients are right."""

import contextlib
import logging
import os

import rueda.torch as hvd
import torch
from rueda.torch._graph import walk
from torch.utils.checkpoint import checkpoint
from torch_support import expect_close, rank_and_size


@contextlib.contextmanager
def said():
    """Gives the list of what rueda.torch says of plans that are not agreed on."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("rueda.torch")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def names_in_order(model, *roots):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(leaf)] for leaf in walk(roots).leaves]


class Branches(torch.nn.Module):
    """Has a branch of two layers beside one of one layer, a layer that is used twice, and one that is not used."""

    def __init__(self):
        super().__init__()
        self.first, self.short, self.twice, self.long, self.last, self.unused = (torch.nn.Linear(4, 4, bias=False) for _ in range(6))

    def forward(self, rows):
        rows = self.first(rows)
        rows = self.short(rows) + self.long(self.twice(self.twice(rows)))
        return self.last(rows)


def case_the_order_is_that_of_the_graph():
    """A gradient is there when all that adds to it is: `twice` is after `long`, and `first` after every way that leads to it. Of two
    branches, the one that the forward pass came to last comes first, as in the backward pass."""
    model = Branches()
    order = names_in_order(model, model(torch.ones(2, 4)).sum())
    assert order == ["last.weight", "long.weight", "short.weight", "twice.weight", "first.weight"], order
    graph = walk([model(torch.ones(2, 4)).sum()])
    assert not graph.hides_some and not graph.has_sparse and len(graph.leaves) == 5 and graph.edges > graph.nodes > 10, graph
    assert walk([torch.ones(2), torch.ones(2, requires_grad=True)]) == ([], 0, 0, False, False)


def case_what_the_graph_does_not_say_is_noticed():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    again = checkpoint(model[0], torch.ones(2, 4, requires_grad=True), use_reentrant=True)
    assert walk([model[1](again).sum()]).hides_some
    table = torch.nn.Embedding(4, 2, sparse=True)
    assert walk([table(torch.tensor([1])).sum()]).has_sparse
    assert not walk([torch.nn.Embedding(4, 2)(torch.tensor([1])).sum()]).has_sparse


def distributed(model, prefix="", **arguments):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                    named_parameters=[(prefix + name, one) for name, one in model.named_parameters()], **arguments)


def expect_average(model, optimizer, make_loss, step):
    """Makes a step, and expects each gradient to be the average of all ranks' gradients, which a copy of the model computes."""
    rank, size = rank_and_size()
    optimizer.zero_grad()
    make_loss(model, step, rank).backward()
    optimizer.step()
    own = type(model)()
    own.load_state_dict(model.state_dict())
    for copied, parameter in zip(own.parameters(), model.parameters()):
        copied.requires_grad_(parameter.requires_grad)
    for other in range(size):
        (make_loss(own, step, other) / size).backward()
    for (name, found), expected in zip(model.named_parameters(), own.parameters()):
        if expected.grad is not None:
            dense = expected.grad.to_dense() if expected.grad.is_sparse else expected.grad
            expect_close(found.grad.to_dense() if found.grad.is_sparse else found.grad, dense, 1e-5, (name, step))


def expect_averages(model, make_loss, steps=3, **arguments):
    optimizer = distributed(model, **arguments)
    for step in range(steps):
        expect_average(model, optimizer, make_loss, step)


def loss_of_branches(model, step, rank):
    torch.manual_seed(31 * step + rank)
    return (model(torch.randn(3, 4)) ** 2).mean()


def same_weights(model):
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model


def case_what_is_not_used_comes_last():
    expect_averages(same_weights(Branches()), loss_of_branches)


def case_groups_and_frozen_parameters():
    model = same_weights(Branches())
    model.short.weight.requires_grad_(False)
    groups = [[model.first.weight, model.last.weight], [model.long.weight, model.twice.weight]]
    expect_averages(model, loss_of_branches, groups=groups)


def case_without_overlap_without_a_copy_less_and_compressed():
    for variables in ({"RUEDA_TORCH_OVERLAP": "0"}, {"RUEDA_TORCH_ZERO_COPY": "0"}, {"RUEDA_TORCH_DECLARE": "0"}):
        os.environ.update(variables)
        try:
            expect_averages(same_weights(Branches()), loss_of_branches)
        finally:
            for name in variables:
                del os.environ[name]


class Table(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.table, self.last = torch.nn.Embedding(8, 4, sparse=True), torch.nn.Linear(4, 2)

    def forward(self, rows):
        return self.last(self.table(rows))


def case_sparse_gradients_are_not_declared():
    expect_averages(same_weights(Table()),
                    lambda model, step, rank: model(torch.tensor([step, rank + 3])).sum() * (rank + 1))


def case_ranks_whose_graphs_differ_learn_the_schedule():
    """One rank leaves a layer out, so its graph, and the order of what it declares, is another."""

    def loss(model, step, rank):
        rows = torch.full((2, 4), float(step + rank + 1))
        return (model.last(model.first(rows)) if rank == 1 else model(rows)).sum()

    with said() as lines:
        expect_averages(same_weights(Branches()), loss, steps=6)
    assert len(lines) == 1 and "rank 1" in lines[0], lines


def case_one_rank_knows_no_plan():
    """The others do not wait for it."""
    os.environ["RUEDA_TORCH_ZERO_COPY"] = "0" if hvd.rank() == 0 else "1"
    try:
        with said() as lines:
            expect_averages(same_weights(Branches()), loss_of_branches)
    finally:
        del os.environ["RUEDA_TORCH_ZERO_COPY"]
    assert len(lines) == 1 and "the number of the plan's tensors is 0 on rank 0 and 6" in lines[0], lines


def case_two_optimizers_take_turns():
    models = [same_weights(Branches()) for _ in range(2)]
    optimizers = [distributed(model, f"{place}.") for place, model in enumerate(models)]
    for step in range(4):
        for model, optimizer in zip(models, optimizers):
            expect_average(model, optimizer, loss_of_branches, step)


def case_a_rank_that_has_no_data_joins():
    """It has joined when the others declare, or joins while they wait for its declaration."""
    rank, _ = rank_and_size()
    model = same_weights(Branches())
    optimizer = distributed(model)
    if rank != 0:
        for step in range(3):
            optimizer.zero_grad()
            loss_of_branches(model, step, rank).backward()
            optimizer.step()
            assert model.last.weight.grad.abs().sum() > 0
    hvd.join()
