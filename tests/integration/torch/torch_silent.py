"""Holds cases of torch_rank.py: what once trained wrongly in silence, one case for each. The weights that every rank must have
are worked out by hand: one weight, whose gradient on rank r is r + 1, and a learning rate of 1."""

import rueda.torch as hvd
import torch
from torch_support import expect_close, rank_and_size


class One(torch.nn.Module):
    """A model that multiplies its weight by the rank's number."""

    def __init__(self, weights=1):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(3)) for _ in range(weights)])

    def forward(self):
        return sum((hvd.rank() + 1) * weight.sum() for weight in self.weights)


def mean_gradient():
    return (rank_and_size()[1] + 1) / 2


def wrap(model, plain=None, **arguments):
    plain = plain or torch.optim.SGD(model.parameters(), lr=1.0)
    return hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), **arguments)


def train(model, optimizer, steps=1, set_to_none=False):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        model().backward()
        optimizer.step()


def expect_weight(weight, value, what):
    expect_close(weight.detach(), torch.full((3,), float(value)), 1e-6, what)


def case_a_gradient_whose_data_was_replaced_is_reduced():
    model = One()
    optimizer = wrap(model)
    train(model, optimizer)
    model.weights[0].grad.data = torch.zeros(3)
    train(model, optimizer, 2)
    expect_weight(model.weights[0], -3 * mean_gradient(), "p.grad.data was replaced")


def case_a_model_that_was_converted_or_shared_is_reduced():
    for convert in (lambda model: model.half().float(), lambda model: model.double().float(), lambda model: model.share_memory()):
        model = One()
        optimizer = wrap(model)
        train(model, optimizer)
        convert(model)
        train(model, optimizer, 2)
        expect_weight(model.weights[0], -3 * mean_gradient(), convert)


def case_a_frozen_parameter_stays():
    for groups in (None, 1):
        for freezes_first in (True, False):
            model = One(2)
            plain = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=0.1)
            optimizer = wrap(model, plain, groups=groups)
            train(model, optimizer, set_to_none=True)
            before = model.weights[0].detach().clone()
            for step in range(2):
                if freezes_first:
                    model.weights[0].requires_grad_(False)
                optimizer.zero_grad(set_to_none=True)
                model.weights[0].requires_grad_(False)
                model().backward()
                optimizer.step()
                expect_close(model.weights[0].detach(), before, 0, (groups, freezes_first, step))


def case_a_scheduler_of_the_plain_optimizer_steers_all_ranks():
    model = One()
    plain = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: 1.0 / (step + 1))
    optimizer = wrap(model, plain)
    groups = optimizer.param_groups
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups is groups and plain.param_groups is groups
    train(model, optimizer)
    scheduler.step()
    train(model, optimizer)
    # The learning rate is 1, then 1/2, of a momentum of 1.5.
    expect_weight(model.weights[0], -mean_gradient() * (1 + 0.75), "the learning rate decays on rank 0 alone")


def case_a_gradient_that_is_kept_keeps_its_values():
    model = One()
    optimizer = wrap(model)
    train(model, optimizer)
    optimizer.zero_grad()
    model().backward()
    optimizer.synchronize()
    kept = model.weights[0].grad
    view = kept.view(-1)
    optimizer.zero_grad(set_to_none=True)
    (3 * model()).backward()
    optimizer.synchronize()
    expect_weight(kept, mean_gradient(), "the kept gradient became the second one")
    del kept
    optimizer.zero_grad(set_to_none=True)
    (5 * model()).backward()
    optimizer.synchronize()
    expect_weight(view, mean_gradient(), "a view of the kept gradient")
    expect_weight(model.weights[0].grad, 5 * mean_gradient(), "the gradient itself")


def case_a_step_after_synchronize_waits_for_what_was_computed_since():
    for drains in (True, False):
        model = One()
        optimizer = wrap(model)
        model().backward()
        optimizer.synchronize()
        if drains:
            optimizer.zero_grad()
        model().backward()
        optimizer.step()
        optimizer.zero_grad()
        expect_weight(model.weights[0], -mean_gradient() * (1 if drains else 2), f"drains: {drains}")


def case_a_closures_gradients_are_reduced_before_they_are_used():
    def make_closure(model, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = model() + (model.weights[0] ** 2).sum()
            loss.backward()
            return loss
        return closure

    model = One()
    optimizer = wrap(model)
    loss = optimizer.step(make_closure(model, optimizer))
    assert float(loss.detach()) == 0
    expect_weight(model.weights[0], -mean_gradient(), "SGD with a closure")
    model = One()
    optimizer = wrap(model, torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10))
    for _ in range(4):
        optimizer.step(make_closure(model, optimizer))
    # The expected value is the minimum of mean(r + 1) w + w^2.
    expect_close(model.weights[0].detach(), torch.full((3,), -mean_gradient() / 2), 1e-2, "LBFGS")
    weights = hvd.allgather(model.weights[0].detach().unsqueeze(0), name="weights")
    assert all(torch.equal(one, model.weights[0].detach()) for one in weights), weights


def case_step_hooks_are_called_once_a_step():
    if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
        return  # PyTorch 1.13 does not have it
    model = One()
    optimizer = wrap(model)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.load_state_dict(optimizer.state_dict())
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    train(model, optimizer, 3)
    assert len(calls) == 3, calls


def case_complex_parameters_are_reduced():
    for groups in (None, 1):
        model = One()
        model.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64)) for _ in range(2)])
        optimizer = wrap(model, groups=groups)
        for _ in range(2):
            optimizer.zero_grad()
            (model() * torch.tensor(1 + 2j)).real.backward()
            optimizer.step()
        for weight in model.weights:
            expect_close(torch.view_as_real(weight.detach()), -2 * mean_gradient() * torch.tensor([[1.0, -2.0]] * 3), 1e-5)


def case_batch_norm_without_rows_keeps_its_statistics():
    module = hvd.SyncBatchNorm(2)
    module(torch.randn(3, 2) + 5)
    mean, variance = module.running_mean.clone(), module.running_var.clone()
    result = module(torch.zeros(0, 2, requires_grad=True))
    result.sum().backward()
    assert torch.equal(module.running_mean, mean) and torch.equal(module.running_var, variance), module.running_mean
    assert not torch.isnan(module.weight.grad).any()


def case_batch_norm_of_few_bits_is_as_exact_as_torchs():
    rank, size = rank_and_size()
    torch.manual_seed(11)
    whole = (torch.randn(8 * size, 4) + 20).bfloat16()
    own = slice(8 * rank, 8 * rank + 8)
    wanted = torch.nn.BatchNorm1d(4)(whole.float())[own]
    found = hvd.SyncBatchNorm(4)(whole[own])
    assert found.dtype == torch.bfloat16
    expect_close(found.detach(), wanted.detach(), 0.02, "bfloat16 with a mean of 20")
