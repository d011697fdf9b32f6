"""Runs a rank of bench/train.py, which trains one network for some steps and measures how long they take. Rank 0 prints one line
of JSON: {"seconds": the median of the slowest rank's step times, "phases": the medians of their parts, "loss", "sum": over the
first gradient after the last step, "bytes": of all gradients}.

The sides are local (every process for itself), hvd (rueda.torch's DistributedOptimizer), ddp-rueda, ddp-arena (the same with its
buckets in the arena) and ddp-gloo."""

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from training import KINDS_OF_PICTURES, models, pictures  # noqa: E402
from training.sleeping import IdleOptimizer, SleepingModel  # noqa: E402

SIDES = ("local", "hvd", "ddp-rueda", "ddp-arena", "ddp-gloo")
PHASES = ("input", "forward", "backward", "synchronisation", "update")


class Steps:
    """Holds the times of steps and of their parts."""

    def __init__(self):
        self.seconds = []
        self.phases = defaultdict(list)
        self._begin_s = self._last_s = 0.0

    def begin(self):
        self._begin_s = self._last_s = time.perf_counter()

    def end_phase(self, name):
        now = time.perf_counter()
        self.phases[name].append(now - self._last_s)
        self._last_s = now

    def end(self):
        self.seconds.append(time.perf_counter() - self._begin_s)

    def forget(self):
        self.seconds.clear()
        self.phases.clear()


class Alone:
    """The side without communication: no gradient leaves its process."""

    def __init__(self, model, make_optimizer):
        self.model, self.optimizer = model, make_optimizer(model)

    def synchronize(self):
        pass

    def update(self):
        self.optimizer.step()


class Horovod(Alone):
    def __init__(self, model, make_optimizer):
        import rueda.torch as hvd
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(make_optimizer(model), named_parameters=model.named_parameters())
        super().__init__(model, lambda _: optimizer)

    def synchronize(self):
        self.optimizer.synchronize()

    def update(self):
        with self.optimizer.skip_synchronize():
            self.optimizer.step()


class Ddp(Alone):
    """The sides with DDP, whose waiting is part of its backward pass."""

    def __init__(self, model, make_optimizer, has_arena):
        wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if has_arena:
            import rueda.distributed
            wrapped.register_comm_hook(None, rueda.distributed.arena_hook)
        super().__init__(wrapped, lambda _: make_optimizer(model))


def begin(side):
    """Joins the job's ranks."""
    if side == "ddp-gloo":
        dist.init_process_group("gloo")
        return
    import rueda.torch as hvd
    hvd.init()
    if side.startswith("ddp-"):
        import rueda.distributed  # noqa: F401
        dist.init_process_group("rueda")


def end(side):
    if side.startswith("ddp-"):
        dist.destroy_process_group()
    if side != "ddp-gloo":
        import rueda.torch as hvd
        hvd.shutdown()


def wrap(side, model, make_optimizer):
    if side == "local":
        return Alone(model, make_optimizer)
    if side == "hvd":
        return Horovod(model, make_optimizer)
    return Ddp(model, make_optimizer, has_arena=side == "ddp-arena")


def barrier(side):
    if side.startswith("ddp-"):
        dist.barrier()
    else:
        import rueda.torch as hvd
        hvd.barrier()


def slowest(side, values):
    """Returns, of each value, the largest that any rank has."""
    tensor = torch.tensor(values, dtype=torch.float64)
    if side.startswith("ddp-"):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor.tolist()
    import rueda.torch as hvd
    return hvd.allreduce(tensor, op=hvd.Max, name="slowest").tolist()


def sleep_steps(wrapped, side, arguments, times):
    """Makes steps of a network that sleeps. Each rank's gradients begin as its rank + 1, so that their average says which ranks
    were in it."""
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            times.forget()
        barrier(side)
        times.begin()
        loss = wrapped.model(torch.ones(1, requires_grad=True))
        times.end_phase("forward")
        loss.backward()
        times.end_phase("backward")
        wrapped.synchronize()
        times.end_phase("synchronisation")
        times.end()
    return 0.0


def train_steps(wrapped, side, arguments, times):
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    count = arguments.warmup + arguments.steps
    batches = iter(pictures.loader_of(arguments.data, arguments.batch, arguments.side, rank, ranks, count))
    loss = torch.zeros(())
    for step in range(count):
        if step == arguments.warmup:
            times.forget()
        barrier(side)
        times.begin()
        inputs, labels = next(batches)
        times.end_phase("input")
        wrapped.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(wrapped.model(inputs), labels)
        times.end_phase("forward")
        loss.backward()
        times.end_phase("backward")
        wrapped.synchronize()
        times.end_phase("synchronisation")
        wrapped.update()
        times.end_phase("update")
        times.end()
    return loss.item()


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", choices=SIDES, required=True)
    parser.add_argument("--model", choices=models.MODELS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--schedule", help="compute nothing, sleep by this file")
    parser.add_argument("--step-s", type=float, help="of the network that sleeps")
    parser.add_argument("--data", choices=KINDS_OF_PICTURES, default="synthetic")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=64, help="pixels")
    return parser.parse_args(arguments)


def main():
    arguments = parse(sys.argv[1:])
    torch.set_num_threads(1)
    begin(arguments.run)
    times = Steps()
    if arguments.schedule:
        model = SleepingModel(models.read_schedule(arguments.schedule), arguments.step_s)
        wrapped = wrap(arguments.run, model, lambda network: IdleOptimizer(network.parameters()))
        for parameter in model.parameters():
            parameter.grad.fill_(float(os.environ["RANK"]) + 1)
        loss = sleep_steps(wrapped, arguments.run, arguments, times)
    else:
        model = models.build(arguments.model, classes=10)
        wrapped = wrap(arguments.run, model,
                       lambda network: torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9))
        loss = train_steps(wrapped, arguments.run, arguments, times)
    gradients = [parameter.grad for parameter in model.parameters()]
    result = {"seconds": statistics.median(slowest(arguments.run, times.seconds)),
              "phases": {name: statistics.median(slowest(arguments.run, times.phases[name]))
                         for name in PHASES if times.phases[name]},
              "loss": loss, "sum": gradients[0].double().sum().item(), "elements": gradients[0].numel(),
              "bytes": sum(gradient.numel() * gradient.element_size() for gradient in gradients)}
    if os.environ["RANK"] == "0":
        print(json.dumps(result), flush=True)
    end(arguments.run)
    if arguments.run == "ddp-gloo":
        os._exit(0)  # at the end of the interpreter PyTorch's threads hang now and then
    return 0


if __name__ == "__main__":
    sys.exit(main())
