#!/usr/bin/python3
"""Kills parts of a job that goes on, one after the other, and measures what that costs the others. On Rueda's side an elastic job
(ruedarun --min-np), beside it PyTorch's Gloo backend under torchrun, which starts all processes again.

    bench/faults.py

For each fault it waits until all ranks are there again. --kill says what dies: a rank; a daemon, but not the coordinator's; or the
daemon of the coordinator's node (coordinator). The output is Markdown: the median, and the longest, of the faults, of

    error       from the kill until the last of the others has an error in its hands
    next step   from there until the last of the others has made a step of what comes after it, its state (--state-mb) sent anew
    taken in    from the first call of the process in the dead one's place until all have made a step with it
    standstill  of that, the time in which the others made no step: they leave, take part again, and get the state
    whole       from the kill of a daemon until all ranks have made a step together again
    ended       how many other processes have ended by the fault

The others are those whose process, or whose node's daemon, was not killed. With --nodes N the job is on N virtual nodes of this machine.
Gloo's processes are all started again, so the second begins there with Python and PyTorch, and has the others' places in it.

    bench/faults.py --faults 9 --ranks 3 --state-mb 204
    bench/faults.py --kill daemon --ranks 4 --nodes 4

Exit codes: 0; 1 an error; 2 a wrong command line.
"""

import argparse
import collections
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from comparing.training_jobs import PYTHON, ROOT, JobError, environment_of

RANK = str(ROOT / "bench" / "faults_rank.py")
FIGURES = ("error", "next step", "taken in", "standstill", "whole", "ended")
PATIENCE_S = 180
SETTLE_S = 0.5  # between a whole job and the next fault


class Log:
    """Collects the events of a job that runs."""

    def __init__(self, pipe):
        self.events = []
        self.other = []
        self._changed = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe):
        for line in pipe:
            with self._changed:
                try:
                    self.events.append(json.loads(line[line.index("{"):]))
                except ValueError:
                    self.other.append(line)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, what, condition):
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or condition(self.events), PATIENCE_S)
            if not condition(self.events):
                raise JobError(f"{what} did not come within {PATIENCE_S} s:\n{''.join(self.other[-20:])}")


def command_of(options, side, state_bytes, stop):
    rank = [RANK, side, str(state_bytes), stop]
    if side == "gloo":
        # Debian's torchrun cannot leave the processes' output alone (under Python 3.11 a flag of no bit has no name).
        return [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(options.ranks), "--max_restarts",
                str(options.faults), "-r", "1", "-t", "1", "--log_dir", os.path.dirname(stop), *rank]
    nodes = ["--virtual-nodes", str(options.nodes)] if options.nodes > 1 else []
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "-np", str(options.ranks), *nodes, "--min-np", "1",
            "--max-restarts", str(options.faults + 1), PYTHON, *rank]


@contextlib.contextmanager
def job_of(options, side):
    """Runs the job, and ends it by its file."""
    with tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        command = command_of(options, side, options.state_mb * 1_000_000, stop)
        with subprocess.Popen(command, env=environment_of(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as job:
            try:
                yield Log(job.stdout), job.pid
                with open(stop, "w", encoding="utf-8"):
                    pass
                if job.wait(PATIENCE_S) != 0:
                    raise JobError(f"the job ({side}) ended with {job.returncode}")
            finally:
                job.terminate()


def firsts(events, since, size):
    """Returns {slot: the first event "first" of a slot with so many ranks after that time}."""
    found = {}
    for event in events:
        if event["event"] == "first" and event["at"] > since and event["size"] == size:
            found.setdefault(event["slot"], event)
    return found


def pids_of(events):
    """Returns {slot: pid of the newest process}."""
    return {event["slot"]: event["pid"] for event in events if event["event"] == "first"}


def figures_of(events, victim, killed_at, size, side):
    """Returns the figures of a fault, once all ranks are there again."""
    after = [event for event in events if event["at"] > killed_at]
    others = [event for event in after if event["slot"] != victim]
    errors = [event["at"] for event in others if event["event"] == "error"]
    whole = firsts(after, killed_at, size)
    before = pids_of([event for event in events if event["at"] <= killed_at])
    ended = sum(1 for slot, pid in pids_of(events).items() if slot != victim and pid != before[slot])
    figures = {"error": max(errors) - killed_at, "ended": ended}
    if side == "gloo":
        return {**figures, "next step": max(event["at"] for event in whole.values()) - max(errors)}
    fewer = firsts(others, killed_at, size - 1)
    begun = next(event["at"] for event in after if event["slot"] == victim and event["event"] == "init")
    left = [event["at"] for event in others if event["event"] == "leave"]
    last = max(event["at"] for event in whole.values())
    return {**figures, "next step": max(event["at"] for event in fewer.values()) - max(errors), "taken in": last - begun,
            "standstill": last - min(left)}


def figures_of_daemon(events, gone, killed_at, size):
    """Returns the figures of a fault in which the daemon of the slots in `gone` was killed, once all ranks are there again."""
    after = [event for event in events if event["at"] > killed_at]
    others = [event for event in after if event["slot"] not in gone]
    errors, steps = {}, {}
    for event in others:
        if event["event"] in ("error", "first"):
            (errors if event["event"] == "error" else steps).setdefault(event["slot"], event["at"])
    before = pids_of([event for event in events if event["at"] <= killed_at])
    return {"error": max(errors.values()) - killed_at, "next step": max(steps.values()) - max(errors.values()),
            "whole": max(event["at"] for event in firsts(after, killed_at, size).values()) - killed_at,
            "ended": sum(1 for slot, pid in pids_of(events).items() if pid != before[slot])}


def slots_of(options, node):
    """Returns the slots on a virtual node: contiguous blocks, of which the first are the larger ones."""
    least, more = divmod(options.ranks, options.nodes)
    begin = node * least + min(node, more)
    return set(range(begin, begin + least + (node < more)))


def daemon_of(launcher, node):
    """Returns the pid of the daemon that the launcher has started for a virtual node."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            status = Path("/proc", name, "status").read_text(encoding="utf-8")
            command = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"PPid:\t{launcher}\n" in status and f"node{node}".encode() in command and command[0].endswith(b"ruedad"):
            return int(name)
    raise JobError(f"node{node} has no daemon")


def victim_of(options, number, events, launcher):
    """Returns the process that the fault kills, and the slots that it takes along."""
    if options.kill == "rank":
        victim = number % options.ranks
        return pids_of(events)[victim], {victim}
    node = 0 if options.kill == "coordinator" else 1 + number % (options.nodes - 1)
    return daemon_of(launcher, node), slots_of(options, node)


def measure(options, side):
    """Returns {figure: its value in each fault}."""
    found = collections.defaultdict(list)
    size = options.ranks
    with job_of(options, side) as (log, launcher):
        log.wait_for("the first step of all", lambda events: len(firsts(events, 0, size)) == size)
        for number in range(options.faults):
            time.sleep(SETTLE_S)
            pid, gone = victim_of(options, number, log.events, launcher)
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            log.wait_for("a step of all after a death",
                         lambda events, at=killed_at: len(firsts(events, at, size)) == size)
            events = list(log.events)
            figures = (figures_of(events, min(gone), killed_at, size, side)
                       if options.kill == "rank" else figures_of_daemon(events, gone, killed_at, size))
            for name, value in figures.items():
                found[name].append(value)
            print(f"{side}, fault {number + 1} of {options.faults}: " +
                  ", ".join(f"{name} {value if name == 'ended' else f'{value:.3f} s'}" for name, value in figures.items()),
                  file=sys.stderr, flush=True)
    return found


def cell(name, values):
    if not values:
        return "-"
    if name == "ended":
        return f"{statistics.median(values):.0f} (most {max(values):.0f})"
    return f"{statistics.median(values):.3f} s ({max(values):.3f})"


def table(found):
    """Returns the results as Markdown."""
    lines = ["| | " + " | ".join(FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    for side, figures in found.items():
        lines.append(f"| {side} | " + " | ".join(cell(name, figures.get(name, [])) for name in FIGURES) + " |")
    return "\n".join(lines)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="has bin/ and lib/")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=1, help="virtual nodes")
    parser.add_argument("--kill", choices=("rank", "daemon", "coordinator"), default="rank")
    parser.add_argument("--faults", type=int, default=9, help="deaths, of one after the other")
    parser.add_argument("--state-mb", type=int, default=204, help="what each generation begins with")
    parser.add_argument("--sides", default="rueda,gloo", help="which are measured, by commas")
    options = parser.parse_args(arguments)
    if options.ranks < 2 or options.faults < 1 or options.state_mb < 1:
        parser.error("--ranks is 2 at least, --faults and --state-mb are 1")
    if options.kill != "rank":
        options.sides = "rueda"  # Gloo has no daemons.
    if options.nodes > options.ranks or (options.kill != "rank" and options.nodes < 2):
        parser.error("--nodes is --ranks at most, and 2 at least to kill a daemon")
    options.sides = options.sides.split(",")
    if not set(options.sides) <= {"rueda", "gloo"}:
        parser.error("--sides are rueda and gloo")
    return options


def main():
    options = parse()
    try:
        found = {side: measure(options, side) for side in options.sides}
    except JobError as error:
        print(f"faults.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.faults} deaths ({options.kill}) in a job of {options.ranks} ranks on {options.nodes} nodes, {options.state_mb} MB of "
          "state; median (longest)\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
