"""Has what the ranks of elastic jobs share: who is killed when, when training ends, and what is said of a step."""

import os

import numpy as np
import rueda

SLOT = int(os.environ["RANK"])  # of the first generation: a process in the place of another has the same


def death_of(arguments):
    """Returns the step at which this process is killed, or None. Arguments are SLOT:STEP, and mean the first process of a slot."""
    is_first = not os.path.exists(f"born{SLOT}")
    with open(f"born{SLOT}", "w", encoding="utf-8"):
        pass
    return next((int(one.split(":")[1]) for one in arguments if is_first and int(one.split(":")[0]) == SLOT), None)


def is_over():
    """Returns whether any rank has found the file "stop", on all ranks alike."""
    return rueda.allreduce(np.array([float(os.path.exists("stop"))]), name="over", op=rueda.Max)[0] > 0


def say(step):
    print(f"step {step} rank {rueda.rank()} of {rueda.size()}", flush=True)


def say_resets(state):
    """Has a state say how many ranks there were and are, whenever the job goes on without some, or with more."""
    state.register_reset_callbacks([lambda: print(f"reset from {state.previous_size} to {state.current_size}", flush=True)])


def say_weights(weights):
    print("weights", b"".join(np.asarray(one).tobytes() for one in weights).hex(), flush=True)
