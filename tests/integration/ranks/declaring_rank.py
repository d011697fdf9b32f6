"""Runs a rank that declares a plan, then goes through steps. Between its phases it waits for SIGUSR1.

declaring_rank.py PHASE...    declare, declare-without-order, steps, stray"""

import os
import signal
import sys

import numpy as np
import rueda

NORMS = 3


def declared(with_order=True):
    """Returns a plan of four gradients, and of norms that are computed from the first two once they are reduced."""
    plan = [rueda.PlannedTensor(f"layer{i}", np.zeros(64 + i, np.float32), op=rueda.Sum) for i in range(4)]
    for i in range(NORMS):
        plan.append(rueda.PlannedTensor(f"norm{i}", np.zeros(1, np.float32), op=rueda.Sum,
                                        after=("layer0", "layer1") if with_order else ()))
    return plan


def expect(array, value):
    if not (array == value).all():
        sys.exit(f"rank {rueda.rank()}: {array} instead of {value}")


def step():
    mine = 2.0 ** rueda.rank()
    total = 2.0 ** rueda.size() - 1
    handles = [rueda.allreduce_async(np.full(64 + i, mine, np.float32), name=f"layer{i}", op=rueda.Sum)
               for i in range(4)]
    first = [rueda.synchronize(handle) for handle in handles[:2]]
    for array in first:
        expect(array, total)
    # The norms are computed from the sums, so that a norm cannot be submitted before they are there.
    handles = handles[2:] + [rueda.allreduce_async(first[0][:1] * mine, name=f"norm{i}", op=rueda.Sum)
                             for i in range(NORMS)]
    for handle, value in zip(handles, [total] * 2 + [total * total] * NORMS):
        expect(rueda.synchronize(handle), value)


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    rueda.init()
    print(f"pid {os.getpid()}", flush=True)
    for number, phase in enumerate(sys.argv[1:]):
        if phase.startswith("declare"):
            rueda.declare_plan(declared(phase == "declare"))
        elif phase == "steps":
            for _ in range(20):
                step()
        elif phase == "stray":
            expect(rueda.allreduce(np.ones(5, np.float32), name="stranger", op=rueda.Sum), rueda.size())
        print(f"done {number}", flush=True)
        signal.sigwait({signal.SIGUSR1})
    rueda.shutdown()


main()
