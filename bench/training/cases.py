"""Lists what bench/train.py compares: the jobs of each experiment, and how one is run; and makes schedules of networks that sleep."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from comparing.training_jobs import PYTHON, ROOT, JobError, run_job

RANK = str(ROOT / "bench" / "training" / "rank.py")
SIDES = ("hvd", "ddp-rueda", "ddp-arena", "ddp-gloo")
# These are the modules of the Cambridge report: pipelining (P) and fusion (F), with gradients added up on the node first (two
# steps) or not (one step), in a ring or centrally.
MODULES = ("none", "P", "F", "P+F")
STEPS = {"one-step": "device", "two-step": "node"}
ALGORITHMS = ("ring", "central")
FUSION_BYTES = tuple(1 << power for power in range(16, 28))  # 64 KiB to 128 MiB
PLACES = ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2))  # ranks, nodes
LOOPS = (0, 1, 2, 4)


@dataclass(frozen=True)
class Case:
    """One job. `label` is its row, and `column` its column in that row."""

    label: str
    column: str
    side: str
    model: str
    ranks: int = 4
    nodes: int = 2
    flags: tuple = ()
    variables: dict = field(default_factory=dict, hash=False)
    step_s: float = 0.0  # 0: the network computes

    def local(self):
        """Returns the same work without communication."""
        return replace(self, label="local", side="local", flags=(), variables={})


def wrapper(modules, steps, algorithm):
    """Returns (flags of ruedarun, variables) of one of the Cambridge report's wrappers."""
    has = modules.split("+")
    flags = ("--reducer", STEPS[steps], "--algorithm", algorithm)
    if "F" not in has:
        flags += ("--fusion-threshold", "0")
    return flags, {"RUEDA_TORCH_OVERLAP": "1" if "P" in has else "0"}


def sides(options):
    """Returns the cases that show exposed communication, by model: every side beside the others."""
    return [Case(side, model, side, model, options.ranks, options.nodes, step_s=options.step_s)
            for model in options.models for side in options.sides]


def wrappers(options):
    cases = []
    for modules in MODULES:
        for steps in STEPS:
            for algorithm in ALGORITHMS:
                flags, variables = wrapper(modules, steps, algorithm)
                cases.append(Case(modules, f"{steps}, {algorithm}", "hvd", options.models[0], options.ranks,
                                  options.nodes, flags, variables, options.step_s))
    return cases


def fusion(options):
    return [Case("hvd", str(size), "hvd", options.models[0], options.ranks, options.nodes,
                 ("--fusion-threshold", str(size)), {}, options.step_s) for size in FUSION_BYTES]


def scaling(options):
    return [Case(side, f"{ranks} on {nodes}", side, options.models[0], ranks, nodes, step_s=options.step_s)
            for side in options.sides for ranks, nodes in PLACES]


def loops(options):
    """Returns the cases for the number of a daemon's threads that add up and send; with 0 one thread does everything."""
    cases = []
    for steps, reducer in STEPS.items():
        for count in LOOPS:
            cases.append(Case(steps, f"{count} loops", "hvd", options.models[0], options.ranks, options.nodes,
                              ("--reducer", reducer, f"--daemon-arg=--data-loops={count}"), {}, options.step_s))
    return cases


EXPERIMENTS = {"sides": sides, "wrappers": wrappers, "fusion": fusion, "loops": loops, "scaling": scaling}


def schedule_of(model, options, folder):
    """Returns the path of the model's schedule, which is measured now, in a process of its own."""
    path = Path(folder) / f"{model}.json"
    program = (f"import json, sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); from training import models; "
               f"print(json.dumps(models.measure_schedule({model!r})))")
    path.write_text(run_job([PYTHON, "-c", program], options, f"the schedule of {model}"), encoding="utf-8")
    return path


def command_of(case, options, schedule):
    # The daemons must not choose a congestion control that Gloo does not have.
    command = [str(options.build / "bin" / "ruedarun"), "--no-prefix", "--daemon-arg=--tcp-congestion=system", "-np",
               str(case.ranks), "--virtual-nodes", str(case.nodes), *case.flags, PYTHON, RANK, "--run", case.side, "--model", case.model,
               "--steps", str(options.steps), "--warmup", str(options.warmup)]
    if case.step_s:
        return [*command, "--schedule", str(schedule), "--step-s", str(case.step_s)]
    return [*command, "--data", options.data, "--batch", str(options.batch), "--side", str(options.pixels)]


def checked(result, case):
    """Returns the result if every rank's gradient was in the average. The gradients of a network that sleeps are rank + 1."""
    wanted = (case.ranks + 1) / 2 * result["elements"]
    if case.step_s and case.side != "local" and abs(result["sum"] - wanted) > 1e-6 * wanted:
        raise JobError(f"{case.label}, {case.column}: the gradients' sum is {result['sum']}, not {wanted}")
    return result


def run(case, options, schedule):
    """Runs a case and returns what its rank 0 has printed."""
    said = run_job(options.node.command(command_of(case, options, schedule)), options, f"{case.label}, {case.column}", case.variables)
    found = re.search(r"^\{.*\}$", said, re.MULTILINE)
    if not found:
        raise JobError(f"{case.label}, {case.column} printed no result:\n{said}")
    return checked(json.loads(found.group()), case)
