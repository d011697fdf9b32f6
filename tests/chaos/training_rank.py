"""Trains a network on handwritten digits by hvd.elastic, and writes down what it sees, as chaos_rank.py does.

    training_rank.py FOLDER STEPS

It ends when it has made so many steps and FOLDER/stop is there, and says how many digits of others it reads right. All ranks together take the
same images in a step, however many they are.
"""

import hashlib
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import rueda  # noqa: E402
import rueda.torch as hvd  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from ranks import SLOT, Log, find_members, total  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

FOLDER, STEPS = sys.argv[1], int(sys.argv[2])
BATCH = 48  # of all ranks together
COMMIT_EVERY = 3
RATE = 0.05


def make_model():
    torch.manual_seed(SLOT + 1)  # Whoever is not synchronised is seen.
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 3), torch.nn.MaxPool2d(2), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def load_data():
    """Returns images and targets, for training and for the test."""
    digits = load_digits()
    images, targets = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    cut = len(order) * 8 // 10
    return (images[order[:cut]], targets[order[:cut]]), (images[order[cut:]], targets[order[cut:]])


def fingerprint(model, optimizer):
    """Returns a digest of all weights and momenta."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
        momentum = optimizer.state[parameter].get("momentum_buffer")
        digest.update(b"-" if momentum is None else momentum.numpy().tobytes())
    return digest.hexdigest()


def main():
    torch.set_num_threads(1)
    log = Log(FOLDER)
    (images, targets), (test_images, test_targets) = load_data()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9),
                                         named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
    generation = 0

    @hvd.elastic.run
    def train(state):
        nonlocal generation
        members = find_members()
        generation = int(total(generation + 1, "generation", rueda.Max))
        log.say("synced", generation=generation, members=members, step=state.step, weights=fingerprint(model, optimizer))
        while True:
            step = state.step + 1
            began = time.monotonic()
            rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))[:BATCH][hvd.rank()::hvd.size()]
            # At one rate to the end, a network reads 3 % less after a step in a hundred than before and after it, whatever happened.
            for group in optimizer.param_groups:
                group["lr"] = RATE if step < STEPS * 2 // 3 else RATE / 10
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), targets[rows]).backward()
            optimizer.step()
            got = int(total(2 ** SLOT * step, "who"))
            if got != members * step:
                log.say("wrong", step=step, members=members, wanted=members * step, got=got)
                os._exit(9)
            state.step = step
            log.say("step", generation=generation, step=step, began=began, members=members)
            if step % COMMIT_EVERY:
                continue
            if total(os.path.exists(os.path.join(FOLDER, "stop")), "stop", rueda.Max) and step >= STEPS:
                return
            state.commit()

    hvd.init()
    train(state)
    with torch.no_grad():
        right = model(test_images).argmax(1).eq(test_targets).float().mean().item()
    log.say("end", step=state.step, accuracy=right, weights=fingerprint(model, optimizer))
    hvd.shutdown()


main()
