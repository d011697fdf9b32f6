"""Runs a rank of bench/declared.py: steps of a network that sleeps, one after the other, with nothing but its gradients reduced. Rank 0
prints one line of JSON: {"seconds": the median of the slowest rank's step times, "operations": those of a step in the plan that is in
force after the last one, or 0, "average": the mean of all gradients after it}."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rueda.torch as hvd  # noqa: E402
from training import models  # noqa: E402
from training.sleeping import IdleOptimizer, SleepingModel  # noqa: E402

PATIENCE_S = 60


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--step-s", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--ruedactl", required=True)
    return parser.parse_args(arguments)


def make_steps(model, optimizer, arguments):
    """Returns the seconds of each step but the first ones. A step begins where the one before has ended."""
    seconds = []
    for step in range(arguments.warmup + arguments.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(torch.ones(1, requires_grad=True)).backward()
        optimizer.step()
        if step >= arguments.warmup:
            seconds.append(time.perf_counter() - begin)
    return seconds


def operations_of_plan(ruedactl):
    """Returns the number of operations of the plan in force, as the node's daemon shows it."""
    shown = subprocess.run([ruedactl, "--socket", os.environ["RUEDA_SOCKET"], "--json", "jobs", "--plan"], capture_output=True,
                           text=True, check=True).stdout
    plans = [plan for plan in json.loads(shown).get("plans", []) if plan["process_set"] == 0]
    return len(plans[0]["batches"]) if plans else 0


def see_plan(arguments):
    """Returns the number of operations of the plan in force on rank 0, and 0 on others. These wait for rank 0 by a file beside the
    schedule, because a collective would be the end of the plan."""
    seen = Path(arguments.schedule).parent / os.environ["RUEDA_JOB_ID"]
    if hvd.rank() == 0:
        operations = operations_of_plan(arguments.ruedactl)
        seen.touch()
        return operations
    deadline_s = time.monotonic() + PATIENCE_S
    while not seen.exists():
        if time.monotonic() > deadline_s:
            sys.exit(f"rank 0 has not asked for the plan within {PATIENCE_S} s")
        time.sleep(0.01)
    return 0


def main():
    arguments = parse(sys.argv[1:])
    torch.set_num_threads(1)
    hvd.init()
    model = SleepingModel(models.read_schedule(arguments.schedule), arguments.step_s)
    optimizer = hvd.DistributedOptimizer(IdleOptimizer(model.parameters()), named_parameters=model.named_parameters())
    for parameter in model.parameters():
        parameter.grad.fill_(hvd.rank() + 1)
    seconds = make_steps(model, optimizer, arguments)
    operations = see_plan(arguments)
    slowest = hvd.allreduce(torch.tensor(seconds, dtype=torch.float64), op=hvd.Max, name="slowest")
    gradients = [parameter.grad for parameter in model.parameters()]
    average = sum(one.double().sum().item() for one in gradients) / sum(one.numel() for one in gradients)
    if hvd.rank() == 0:
        print(json.dumps({"seconds": statistics.median(slowest.tolist()), "operations": operations, "average": average}), flush=True)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
