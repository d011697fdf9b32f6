"""Holds cases of torch_rank.py: ways to use an optimizer, drawn at random from a seed. Each episode trains a model on the ranks,
each with its rows, and on one process with all of them, in the same way: after every step the ranks have the same bits, and the
weights of the one process.

RUEDA_MATRIX_SEED and RUEDA_MATRIX_EPISODES say which episodes; a failure names its seed."""

import contextlib
import os
import random
import warnings

import rueda.torch as hvd
import torch
from torch_support import rank_and_size

FIRST_SEED = int(os.environ.get("RUEDA_MATRIX_SEED", "1"))
EPISODES = int(os.environ.get("RUEDA_MATRIX_EPISODES", "40"))
ROWS = 3  # the rows of each rank in a pass
WORDS = 7  # the words that an embedding has

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, eps=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, eps=1e-3, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, eps=1e-3),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05, eps=1e-3),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3),
}
ACTIONS = ("plain", "plain", "clipped", "drained", "drained_and_on", "closure", "kept", "data", "assigned", "freeze", "shared",
           "converted", "none", "skipped", "broadcast", "halves")


class Model(torch.nn.Module):
    """A network of three layers, the first of which may be an embedding with sparse gradients."""

    def __init__(self, seed, embeds):
        super().__init__()
        torch.manual_seed(seed)
        self.words = torch.nn.Embedding(WORDS, 5, sparse=True) if embeds else None
        self.layers = torch.nn.ModuleList([torch.nn.Linear(5, 6), torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)])
        self.double()

    def forward(self, rows, words):
        if self.words is not None:
            rows = rows + self.words(words)
        for layer in self.layers:
            rows = torch.tanh(layer(rows))
        return rows


def draw(seed):
    """Returns what an episode is made of, which is the same on all ranks."""
    chosen = random.Random(seed)
    plan = {"seed": seed, "optimizer": chosen.choice(list(OPTIMIZERS)), "named": chosen.random() < 0.5,
            "groups": chosen.choice([None, None, 2, 3]), "passes": chosen.choice([1, 1, 2]),
            "zero": chosen.choice(["none", "zeros", "model_none", "model_zeros"]), "schedules": chosen.random() < 0.3,
            "hooked": chosen.random() < 0.3, "embeds": False, "sparse_as_dense": chosen.random() < 0.5, "tolerance": 1e-9}
    if plan["optimizer"] in ("sgd", "adagrad") and chosen.random() < 0.5:
        plan["embeds"] = True
    if plan["optimizer"] == "lbfgs":
        plan["actions"], plan["passes"], plan["tolerance"] = ["closure"] * 4, 1, 1e-6
        return plan
    actions = [chosen.choice(ACTIONS) for _ in range(chosen.randint(3, 7))]
    if plan["embeds"]:  # sparse gradients are neither clipped nor added to in place, nor have .data of another layout
        actions = [action if action in ("plain", "drained", "closure", "none", "skipped") else "plain" for action in actions]
        plan["zero"] = "none"
    if "converted" in actions:
        plan["tolerance"] = 1e-3  # rounded values may be rounded differently
    plan["actions"] = actions
    return plan


class Side:
    """A rank, or the one process that the ranks are compared with."""

    def __init__(self, plan, is_rank):
        self.plan, self.is_rank = plan, is_rank
        rank, size = rank_and_size()
        self.model = Model(plan["seed"], plan["embeds"])
        if is_rank and rank != 0:
            self.model = Model(1000 + rank, plan["embeds"])
        if is_rank:
            hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        if plan["hooked"]:
            self.model.layers[1].weight.register_hook(lambda gradient: 2 * gradient)
        self.rows = slice(rank * ROWS, (rank + 1) * ROWS) if is_rank else slice(0, size * ROWS)
        plain = OPTIMIZERS[plan["optimizer"]](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(plain, 2, 0.5) if plan["schedules"] else None
        self.optimizer = plain
        if is_rank:
            named = self.model.named_parameters() if plan["named"] else None
            self.optimizer = hvd.DistributedOptimizer(
                plain, named_parameters=named, groups=None if plan["embeds"] else plan["groups"],
                backward_passes_per_step=plan["passes"], sparse_as_dense=plan["sparse_as_dense"])
        self.pass_number = 0

    def loss(self):
        """Returns the loss of the next pass, over this side's rows."""
        _, size = rank_and_size()
        torch.manual_seed(7000 + 50 * self.plan["seed"] + self.pass_number)
        self.pass_number += 1
        rows = torch.randn(size * ROWS, 5, dtype=torch.float64)[self.rows]
        words = torch.randint(0, WORDS, (size * ROWS,))[self.rows]
        values = self.model(rows, words)
        return (values ** 2).mean() + values.mean()

    def backward(self):
        for _ in range(self.plan["passes"]):
            self.loss().backward()

    def synchronize(self):
        if self.is_rank:
            self.optimizer.synchronize()

    def skip(self):
        return self.optimizer.skip_synchronize() if self.is_rank else contextlib.nullcontext()

    def zero(self):
        how = self.plan["zero"]
        holder = self.model if how.startswith("model") else self.optimizer
        holder.zero_grad(set_to_none=how.endswith("none"))

    def gradients(self):
        return [parameter for parameter in self.model.parameters() if parameter.grad is not None]

    def act(self, action):
        getattr(self, action)()
        if self.scheduler is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ignores those about steps that were skipped
                self.scheduler.step()

    def plain(self):
        self.backward()
        self.optimizer.step()
        self.zero()

    def clipped(self):
        self.backward()
        self.synchronize()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        with self.skip():
            self.optimizer.step()
        self.zero()

    def drained(self):
        """Another model's step drains this one, whose gradients are thrown away; then it trains."""
        self.backward()
        self.synchronize()
        self.zero()
        self.plain()

    def drained_and_on(self):
        """Gradients are computed further after they were reduced."""
        self.backward()
        self.synchronize()
        self.plain()

    def skipped(self):
        """A scaler has found an infinity."""
        self.backward()
        self.synchronize()
        self.zero()

    def closure(self):
        start = self.pass_number

        def closure():
            self.pass_number = start
            self.optimizer.zero_grad()
            total = 0
            for _ in range(self.plan["passes"]):
                loss = self.loss()
                loss.backward()
                total = total + loss.detach()
            return total

        self.zero()
        self.optimizer.step(closure)
        self.zero()

    def kept(self):
        """Gradients of two losses are kept apart and added up by hand."""
        self.backward()
        self.synchronize()
        kept = [(parameter, parameter.grad) for parameter in self.gradients()]
        self.optimizer.zero_grad(set_to_none=True)
        self.backward()
        self.synchronize()
        for parameter, gradient in kept:
            if parameter.requires_grad:
                parameter.grad.add_(gradient)
        with self.skip():
            self.optimizer.step()
        self.zero()

    def data(self):
        for parameter in self.gradients():
            parameter.grad.data = parameter.grad.data.clone()
        self.plain()

    def assigned(self):
        for parameter in self.gradients():
            parameter.grad = parameter.grad.clone()
        self.plain()

    def halves(self):
        """Gradients are scaled between backward and step."""
        self.backward()
        self.synchronize()
        for parameter in self.gradients():
            parameter.grad.data = parameter.grad.data / 2
        with self.skip():
            self.optimizer.step()
        self.plain()

    def freeze(self):
        """A layer is frozen, or trains again."""
        layer = self.model.layers[self.pass_number % 3]
        self.zero()
        for parameter in layer.parameters():
            parameter.requires_grad_(not parameter.requires_grad)
        if all(not parameter.requires_grad for parameter in self.model.parameters()):
            self.model.requires_grad_(True)
        self.plain()

    def shared(self):
        self.model.share_memory()
        self.plain()

    def converted(self):
        self.model.float().double()
        self.plain()

    def none(self):
        for parameter in self.model.parameters():
            parameter.grad = None
        self.plain()

    def broadcast(self):
        if self.is_rank:
            hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        self.plain()


def weights_of(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def play(plan):
    ours, alone = Side(plan, is_rank=True), Side(plan, is_rank=False)
    for number, action in enumerate(plan["actions"]):
        ours.act(action)
        alone.act(action)
        what = f"seed {plan['seed']}, step {number} ({action}): {plan}"
        weights = weights_of(ours.model)
        of_all = hvd.allgather(weights.unsqueeze(0), name="weights")
        for rank, others in enumerate(of_all):
            assert torch.equal(others, weights), f"rank {rank} has other weights than rank {hvd.rank()}: {what}"
        error = (weights - weights_of(alone.model)).abs().max().item()
        assert error <= plan["tolerance"], f"one process has other weights, by {error}: {what}"


def case_the_ranks_train_as_one_process_whatever_they_do():
    for seed in range(FIRST_SEED, FIRST_SEED + EPISODES):
        try:
            play(draw(seed))
        except BaseException:
            print(f"RUEDA_MATRIX_SEED={seed}: {draw(seed)}", flush=True)
            raise
