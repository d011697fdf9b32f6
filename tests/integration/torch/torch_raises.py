"""Runs a rank whose backward() raises while gradients are in the arena: torch_raises.py HOW. Its traceback is its end, and the
job's."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import rueda.torch as hvd  # noqa: E402
import torch  # noqa: E402

RAISES = 1


def one_backward_too_many(model, optimizer):
    """The hook that Rueda puts there raises."""
    model(torch.ones(2, 50)).sum().backward()
    optimizer.step()
    model(torch.ones(2, 50)).sum().backward()
    if hvd.rank() == RAISES:
        model(torch.ones(2, 50)).sum().backward()
    optimizer.step()


def a_hook_of_the_users(model, optimizer):
    """A hook raises on all ranks, with a reduction in the graph."""
    model(torch.ones(2, 50)).sum().backward()
    optimizer.step()
    model.weight.register_hook(lambda _: int("no number"))
    hvd.allreduce(model(torch.ones(2, 50)).repeat(1, 10_000)).sum().backward()


def in_ddp(*_):
    """Raises under another front end, with its hooks and its buckets."""
    import rueda.distributed  # noqa: F401
    model = torch.nn.Linear(50, 50)
    torch.distributed.init_process_group("rueda")
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    wrapped(torch.ones(2, 50)).sum().backward()
    if hvd.rank() == RAISES:
        model.weight.register_hook(lambda _: int("no number"))
    wrapped(torch.ones(2, 50)).sum().backward()


def main():
    hvd.init()
    model = torch.nn.Linear(50, 50)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    globals()[sys.argv[1]](model, optimizer)
    print("no error", flush=True)


if __name__ == "__main__":
    main()
