#!/usr/bin/python3
"""Trains a classifier of handwritten digits on all ranks at once, and proves that this equals one
process.

    ruedarun -np 4 python3 digits.py --check-reference

Each rank computes the gradient sums of its share of every global batch, Rueda adds them up, and all
divide by the size of the global batch: the same step that one process would make on the whole
batch. The program fails (exit code 1) when a rank's test accuracy is not above 0.95, when the
ranks' weights differ in a single bit, or (--check-reference) when the loss of any step differs from
a single-process run by more than 1e-5. `--reference` does that run alone, without Rueda.
"""

import argparse
import hashlib
import os
import sys
import time

# Each rank has one thread, because the ranks share the cores. This must be set before NumPy loads its BLAS.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

SEED = 7
LAYERS = (64, 96, 48, 10)
EPOCHS = 20
BATCH = 64  # over all ranks
LEARNING_RATE = 0.1
MOMENTUM = 0.9
REQUIRED_ACCURACY = 0.95
LOSS_TOLERANCE = 1e-5


def load_data():
    """Returns ((train x, train y), (test x, test y)): 1437 and 360 images of 8 by 8 pixels from 0 to 1."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    x, y = digits.data[order] / 16.0, digits.target[order]
    split = len(y) * 8 // 10
    return (x[:split], y[:split]), (x[split:], y[split:])


def global_batches(count, epoch):
    """Returns index arrays, the same on every rank, that together are all of the training set in a new order."""
    order = np.random.default_rng((SEED, epoch)).permutation(count)
    return [order[i:i + BATCH] for i in range(0, count, BATCH)]


class Model:
    """A perceptron with two hidden layers. Its parameters are weight, bias, weight, bias, ... in float64."""

    def __init__(self, seed, empty=np.empty):
        random = np.random.default_rng(seed)
        self.parameters, self.gradients, self.velocities = [], [], []
        for inputs, outputs in zip(LAYERS, LAYERS[1:]):
            for values in (random.normal(0, np.sqrt(2 / inputs), (inputs, outputs)), np.zeros(outputs)):
                parameter = empty(values.shape, np.float64)
                parameter[...] = values
                self.parameters.append(parameter)
                self.gradients.append(empty(values.shape, np.float64))
                self.velocities.append(np.zeros_like(values))

    def forward(self, x):
        """Returns the input of every layer, and the class scores."""
        activations = [x]
        last = len(LAYERS) - 2
        for layer in range(last + 1):
            z = activations[-1] @ self.parameters[2 * layer] + self.parameters[2 * layer + 1]
            activations.append(z if layer == last else np.maximum(z, 0))
        return activations

    def backward(self, x, y, on_ready=lambda index: None):
        """Fills the gradients with sums over the rows of x, last layer first, and calls on_ready as
        soon as one is complete. Returns the sum of the losses. x may have no rows."""
        activations = self.forward(x)
        scores = activations.pop()
        scores = scores - scores.max(axis=1, keepdims=True) if len(scores) else scores
        exponentials = np.exp(scores)
        totals = exponentials.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = float(np.sum(np.log(totals[:, 0]) - scores[rows, y]))
        delta = exponentials / totals
        delta[rows, y] -= 1
        for layer in reversed(range(len(LAYERS) - 1)):
            np.sum(delta, axis=0, out=self.gradients[2 * layer + 1])
            on_ready(2 * layer + 1)
            np.matmul(activations[layer].T, delta, out=self.gradients[2 * layer])
            on_ready(2 * layer)
            if layer > 0:
                delta = (delta @ self.parameters[2 * layer].T) * (activations[layer] > 0)
        return loss

    def step(self, batch_size):
        """Makes one step of gradient descent with momentum; the gradients are sums over batch_size rows."""
        for parameter, gradient, velocity in zip(self.parameters, self.gradients, self.velocities):
            velocity *= MOMENTUM
            velocity += gradient / batch_size
            parameter -= LEARNING_RATE * velocity

    def accuracy(self, x, y):
        return float(np.mean(self.forward(x)[-1].argmax(axis=1) == y))


def train_alone():
    """Makes the single-process run. Returns (model, loss of every step)."""
    (x, y), _ = load_data()
    model, losses = Model(SEED), []
    for epoch in range(EPOCHS):
        for batch in global_batches(len(y), epoch):
            losses.append(model.backward(x[batch], y[batch]) / len(batch))
            model.step(len(batch))
    return model, losses


def train_together(rueda):
    """Makes the data-parallel run on this rank. Returns (model, loss of every step)."""
    (x, y), (test_x, test_y) = load_data()
    rank, size = rueda.rank(), rueda.size()
    # Every rank starts with other values; the broadcast makes them equal.
    model = Model(SEED + rank, empty=rueda.empty)
    for index, parameter in enumerate(model.parameters):
        rueda.broadcast_(parameter, root_rank=0, name=f"parameter.{index}")

    losses = []
    loss_sum = rueda.empty((1,), np.float64)
    for epoch in range(EPOCHS):
        for batch in global_batches(len(y), epoch):
            share = batch[rank::size]  # shares may differ by one row, or be empty
            handles = []

            def submit(index):
                handles.append(rueda.allreduce_async_(model.gradients[index], op=rueda.Sum,
                                                      name=f"gradient.{index}"))

            loss_sum[0] = model.backward(x[share], y[share], on_ready=submit)
            handles.append(rueda.allreduce_async_(loss_sum, op=rueda.Sum, name="loss"))
            for handle in handles:
                rueda.synchronize(handle)
            losses.append(loss_sum[0] / len(batch))
            model.step(len(batch))
        if rank == 0:
            print(f"epoch {epoch + 1:2d}: loss {losses[-1]:.4f}, "
                  f"test accuracy {model.accuracy(test_x, test_y):.4f}", flush=True)
    return model, losses


def digest_of(model):
    return hashlib.sha256(b"".join(p.tobytes() for p in model.parameters))


def have_same_weights(rueda, model):
    """Returns True if all ranks' weights are the same, bit for bit."""
    words = np.frombuffer(digest_of(model).digest(), np.int64)
    least = rueda.allreduce(words, op=rueda.Min, name="digest.min")
    greatest = rueda.allreduce(words, op=rueda.Max, name="digest.max")
    return np.array_equal(least, greatest)


def reference_error(losses):
    """Returns the largest difference between these losses and those of a single-process run."""
    _, expected = train_alone()
    return float(np.max(np.abs(np.array(losses) - np.array(expected))))


def run_reference():
    _, (test_x, test_y) = load_data()
    model, losses = train_alone()
    accuracy = model.accuracy(test_x, test_y)
    print(f"one process: final loss {losses[-1]:.6f}, test accuracy {accuracy:.4f}")
    return accuracy > REQUIRED_ACCURACY


def run(check_reference):
    import rueda

    rueda.init()
    begin = time.monotonic()
    model, losses = train_together(rueda)
    seconds = time.monotonic() - begin
    rank = rueda.rank()
    failures = []

    _, (test_x, test_y) = load_data()
    accuracy = model.accuracy(test_x, test_y)
    if not accuracy > REQUIRED_ACCURACY:
        failures.append(f"test accuracy {accuracy:.4f} is not above {REQUIRED_ACCURACY}")
    if not have_same_weights(rueda, model):
        failures.append("the weights are not the same on all ranks")
    if check_reference and rank == 0:
        error = reference_error(losses)
        print(f"largest difference to the loss of a single-process run: {error:.2e}", flush=True)
        if not error <= LOSS_TOLERANCE:
            failures.append(f"a step's loss differs from a single-process run by {error:.2e}")

    for failure in failures:
        print(f"rank {rank}: FAILED: {failure}", file=sys.stderr, flush=True)
    print(f"rank {rank} of {rueda.size()} on {rueda.node_id()}: test accuracy {accuracy:.4f}, weights "
          f"{digest_of(model).hexdigest()[:16]}, {len(losses)} steps in {seconds:.1f} s", flush=True)
    # If one rank fails, all fail.
    failed = rueda.allreduce(np.array([len(failures)], np.int64), op=rueda.Max, name="failed")
    rueda.shutdown()
    return failed[0] == 0


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits, data-parallel with Rueda.")
    parser.add_argument("--reference", action="store_true", help="train in this process alone, without Rueda")
    parser.add_argument("--check-reference", action="store_true",
                        help="compare each step's loss with a single-process run (on rank 0)")
    arguments = parser.parse_args()
    return 0 if (run_reference() if arguments.reference else run(arguments.check_reference)) else 1


if __name__ == "__main__":
    sys.exit(main())
