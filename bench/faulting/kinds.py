"""The faults, and what is measured of each.

A kind makes one fault in a job that is whole, sees to it that the job is whole again, and returns its figures."""

import os
import signal
import time

from comparing.training_jobs import JobError

from .events import figures_of, firsts, have_gone_on, last_steps, slot_of_rank
from .jobs import gloo_job, rueda_job

SETTLE_S = 0.5  # between a whole job and the next fault
GLOO_PATIENCE_S = 30


def finish(job, gone, begun_at, healed_at=None, may_end=frozenset()):
    """Waits until all ranks have made a step together, and returns the figures. `may_end` are the slots whose processes the fault
    has ended itself."""
    others = set(range(job.size)) - gone
    job.log.wait_for("a step of all after a fault",
                     lambda events: len(firsts(events, healed_at or begun_at, job.size)) == job.size and
                     have_gone_on(events, others, begun_at))
    figures, ended = figures_of(list(job.log.events), gone, begun_at, job.size, healed_at)
    return {**figures, "ended": len(ended - may_end)}


def kill_rank(job, slot):
    begun_at = time.monotonic()
    os.kill(last_steps(job.log.events)[slot]["pid"], signal.SIGKILL)
    return finish(job, {slot}, begun_at, may_end={slot})


def any_rank(job, number):
    return kill_rank(job, number % job.size)


def rank_0(job, _):
    return kill_rank(job, slot_of_rank(job.log.events, 0))


def frozen_rank(job, number):
    """It is killed a tenth of --rank-timeout after the others have given it up."""
    slot = number % job.size
    begun_at = time.monotonic()
    os.kill(last_steps(job.log.events)[slot]["pid"], signal.SIGSTOP)
    return finish(job, {slot}, begun_at, may_end={slot})


def kill_daemon(job, node):
    gone = job.slots_of(node)
    begun_at = time.monotonic()
    os.kill(job.daemon_of(node), signal.SIGKILL)
    return finish(job, gone, begun_at)


def coordinator_of(job):
    return job.node_of(slot_of_rank(job.log.events, 0))


def other_daemon(job, number):
    others = [node for node in range(job.nodes) if node != coordinator_of(job)]
    return kill_daemon(job, others[number % len(others)])


def coordinator(job, _):
    return kill_daemon(job, coordinator_of(job))


def wait_for_the_others(job, gone, begun_at):
    """The others go on without those who are gone, who make no step meanwhile."""
    others = set(range(job.size)) - gone
    job.log.wait_for("a step of the others", lambda events: have_gone_on(events, others, begun_at))
    went_on = [event for event in job.log.events if event["event"] == "first" and event["slot"] in gone and event["at"] > begun_at]
    if went_on:
        raise JobError(f"both sides go on: {went_on}")


def frozen_daemon(job, number):
    others = [node for node in range(job.nodes) if node != coordinator_of(job)]
    node = others[number % len(others)]
    pid = job.daemon_of(node)
    begun_at = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for_the_others(job, job.slots_of(node), begun_at)
    finally:
        os.kill(pid, signal.SIGCONT)
    return finish(job, job.slots_of(node), begun_at, time.monotonic())


def cut(job, count):
    """Cuts so many nodes off, none of which is the coordinator's."""
    first = coordinator_of(job)
    cut_off = [node for node in range(job.nodes) if node != first][-count:]
    sides = ([node for node in range(job.nodes) if node not in cut_off], cut_off)
    gone = set().union(*(job.slots_of(node) for node in cut_off))
    begun_at = time.monotonic()
    job.cut(sides, True)
    try:
        wait_for_the_others(job, gone, begun_at)
        time.sleep(1)
        wait_for_the_others(job, gone, begun_at)
    finally:
        job.cut(sides, False)
    return finish(job, gone, begun_at, time.monotonic())


def cut_one(job, _):
    return cut(job, 1)


def cut_half(job, _):
    return cut(job, job.nodes // 2)


# What dies again and again is started again later each time, so that a job has only so many deaths of a slot.
DEATHS_OF_A_SLOT = 2

KINDS = {
    "rank": any_rank, "rank 0": rank_0, "needed rank": any_rank, "daemon": other_daemon, "coordinator": coordinator,
    "frozen rank": frozen_rank, "frozen daemon": frozen_daemon, "cut 1": cut_one, "cut half": cut_half
}
OF_SEVERAL_NODES = ("daemon", "coordinator", "frozen daemon", "cut 1", "cut half")
OF_RANKS = ("rank", "rank 0", "needed rank", "frozen rank")


def flags_of(options, kind, size):
    if kind == "needed rank":
        return ["--min-np", str(size)]
    return ["--rank-timeout", str(options.failure_timeout)] if kind == "frozen rank" else []


def measure(options, layout, kind, tell):
    """Makes the faults in one job after the other. Returns {figure: its values}."""
    size = layout[0] * layout[1]
    in_a_job = DEATHS_OF_A_SLOT * size if kind in OF_RANKS else options.faults
    found, made = {}, 0
    while made < options.faults:
        with rueda_job(options, layout, flags_of(options, kind, size), kind.startswith("cut")) as job:
            job.log.wait_for("the first step of all", lambda events: len(firsts(events, 0, size)) == size)
            for number in range(min(in_a_job, options.faults - made)):
                time.sleep(SETTLE_S)
                figures = KINDS[kind](job, number)
                made += 1
                tell(f"{kind}, fault {made} of {options.faults}", figures)
                for name, value in figures.items():
                    found.setdefault(name, []).append(value)
    return found


# --- Gloo ------------------------------------------------------------------------------------------

def gloo_rank(job, number, sends):
    begun_at = time.monotonic()
    slot = number % job.size
    victim = last_steps(job.log.events)[slot]["pid"]
    os.kill(victim, sends)
    is_over = job.log.comes(lambda events: len(firsts(events, begun_at, job.size)) == job.size, GLOO_PATIENCE_S)
    if not is_over and sends == signal.SIGSTOP:
        os.kill(victim, signal.SIGKILL)
    return begun_at if is_over else None, {slot}


def measure_gloo(options, layout, kind, tell):
    """Returns {figure: its values}, or a sentence where nothing goes on."""
    size = layout[0] * layout[1]
    faults = options.gloo_faults if kind == "rank" else 1
    found = {}
    with gloo_job(options, layout, faults) as job:
        job.log.wait_for("the first step of all", lambda events: len(firsts(events, 0, size)) == size)
        for number in range(faults):
            time.sleep(SETTLE_S)
            if kind == "agent":
                begun_at = time.monotonic()
                job.launchers[0].kill()
                goes_on = job.log.comes(lambda events, at=begun_at: bool(firsts(events, at, size)), GLOO_PATIENCE_S)
                return f"the job {'goes on' if goes_on else 'is over: nothing starts it again'}"
            begun_at, gone = gloo_rank(job, number, signal.SIGKILL if kind == "rank" else signal.SIGSTOP)
            if begun_at is None:
                return f"no other has an error, or makes a step, within {GLOO_PATIENCE_S} s"
            figures, ended = figures_of(list(job.log.events), gone, begun_at, size)
            figures = {"error": figures["error"], "back": figures["back"], "ended": len(ended - gone)}
            tell(f"Gloo, {kind}, fault {number + 1} of {faults}", figures)
            for name, value in figures.items():
                found.setdefault(name, []).append(value)
    return found


GLOO_KINDS = ("rank", "agent", "frozen rank")
