"""Trains a model of sums in an elastic job, by hand, and writes down all that it sees.

    chaos_rank.py FOLDER ELEMENTS

In step n a rank contributes 2^slot * n, where its slot is the rank that it had at first, so the sum itself says who was in it. The
job ends when FOLDER/stop is there. Lines of JSON go to FOLDER/SLOT.PID: what was seen, when, and in which generation, by a number of the ranks' own.
"""

import os
import sys
import time

import numpy as np
import rueda
from ranks import SLOT, Log, find_members, total

FOLDER, ELEMENTS = sys.argv[1], int(sys.argv[2])
COMMIT_EVERY = 3
PAUSE_S = 0.002  # after a step
# Who gets one of these from init() while the job forms tries again.
FORMS = {-4, -5, -6, -7, -13}


class Model:
    """What has been added up, and how far: now, and when it was committed last."""

    def __init__(self):
        self.step, self.weights, self.generation = 0, np.zeros(4), 0
        self.commit()

    def commit(self):
        self.committed = (self.step, self.weights.copy())

    def restore(self):
        self.step, self.weights = self.committed[0], self.committed[1].copy()

    def agree(self):
        """Takes the state of the lowest rank with the newest one."""
        self.generation = int(total(self.generation + 1, "generation", rueda.Max))
        newest = int(total(self.step, "newest", rueda.Max))
        root = int(total(rueda.rank() if self.step == newest else rueda.size(), "root", rueda.Min))
        self.weights = rueda.broadcast(self.weights, root_rank=root, name="weights")
        self.step = newest
        self.commit()


def train(model, log):
    """Makes steps until the job is to end, which it returns, or others want to take part."""
    members = find_members()
    model.agree()
    log.say("synced", generation=model.generation, members=members, step=model.step, weights=model.weights.tobytes().hex())
    while True:
        began, step = time.monotonic(), model.step + 1
        big = rueda.allreduce(np.full(ELEMENTS, 2.0 ** SLOT * step), name="gradient", op=rueda.Sum)
        if not (big == float(members * step)).all():
            log.say("wrong", step=step, members=members, wanted=members * step, got=sorted(set(big.tolist()))[:4])
            os._exit(9)
        model.weights += big[0] * np.array([1.0, 0.5, 0.25, 0.125])
        model.step = step
        log.say("step", generation=model.generation, step=step, began=began, members=members)
        time.sleep(PAUSE_S)
        if step % COMMIT_EVERY:
            continue
        model.commit()
        wishes = int(total(2 * os.path.exists(os.path.join(FOLDER, "stop")) + rueda.hosts_changed(), "wishes", rueda.Max))
        if wishes:
            return wishes >= 2


def main():
    log, model = Log(FOLDER), Model()
    while True:
        try:
            rueda.init()
            log.say("init", rank=rueda.rank(), size=rueda.size())
            if train(model, log):
                rueda.shutdown()
                log.say("end", step=model.step)
                return 0
            log.say("leave", step=model.step)
        except rueda.RuedaError as error:
            log.say("error", code=error.code, text=str(error), step=model.step)
            if not rueda.is_initialized() and error.code not in FORMS:
                return 1
            model.restore()
        try:
            rueda.shutdown()
        except rueda.RuedaError:
            pass


sys.exit(main())
