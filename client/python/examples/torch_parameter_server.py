#!/usr/bin/python3
"""Trains on handwritten digits with parameter servers: some ranks of the job compute gradients, the others keep the weights.

    ruedarun -np 5 python3 torch_parameter_server.py --servers 2                     # three workers, two servers
    ruedarun -np 5 python3 torch_parameter_server.py --servers 2 --asynchronous

The last K ranks (--servers K) are servers and all others workers, in any ratio. The parameters are one vector that is cut into K
shards, and server s alone keeps the weights and the momentum of shard s. A worker computes a gradient, pushes each shard of it to
that shard's server, and pulls the shard's new weights.

What goes where:

- Synchronous, the default: all workers and server s are process set s. A push is a reduce to the server, which contributes zeros
  itself, and a pull is a broadcast from it. The bytes go through the nodes' daemons, as those of all collectives do: a node's
  workers are added up in its shared memory, and their sum travels over whichever --transport the daemons have.
- Asynchronous: a push and a pull are messages of rueda.distributed (send and recv), from one rank to one other. A server takes
  gradients as they come, makes a step with each, and answers with the new weights, so no worker waits for another one. A gradient's
  staleness is the number of steps that its server has made since the worker pulled.

Synchronous training is the training of one process on the whole batches, but for the order in which gradients of rows are added up:
with --check-reference the program fails (exit code 1) if a weight differs from one process's by more than 1e-12 in the end. It
also fails if workers and servers differ in a bit of the weights, or if the test accuracy is below 0.9.
"""

import argparse
import os
import sys
import zlib

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the cores

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import optim  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_digits import Net, load_data  # noqa: E402

import rueda  # noqa: E402
import rueda.distributed  # noqa: E402, F401

SEED = 42
BATCH = 64  # over all workers
REQUIRED_ACCURACY = 0.9
TOLERANCE = 1e-12  # of weights in float64: a rounding is some 1e-16, and 276 steps made it some 1e-15
PUSH, PULL, DONE = range(3)  # tags of messages


def tensors_of(dataset):
    return next(iter(DataLoader(dataset, len(dataset))))


def global_batches(count, epochs):
    """Yields index tensors, the same on every rank: each epoch is all of the training set in a new order."""
    for epoch in range(epochs):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
        yield from order.split(BATCH)


def make_optimizer(parameters, is_asynchronous=False):
    """Returns what makes the steps. It treats each element by itself, so that a server can do so for its shard."""
    # Gradients that come late push on like a momentum, so there is less of the optimizer's own.
    lr, momentum = (0.1, 0.5) if is_asynchronous else (0.05, 0.9)
    return optim.SGD(parameters, lr=lr, momentum=momentum)


def shared_vector(count):
    """Returns a vector in memory that is shared with the node's daemon, which reads and writes it there."""
    return torch.from_numpy(rueda.empty(count, np.float64))


def private_vector(count):
    return torch.empty(count, dtype=torch.float64)


class Model:
    """A network whose weights are one vector, and whose gradients are another: its parameters are views of them."""

    def __init__(self, make_vector):
        torch.manual_seed(SEED)
        self.net = Net().double()
        count = sum(parameter.numel() for parameter in self.net.parameters())
        self.weights, self.gradients = make_vector(count), make_vector(count)
        begin = 0
        for parameter in self.net.parameters():
            end = begin + parameter.numel()
            self.weights[begin:end] = parameter.detach().reshape(-1)
            parameter.data = self.weights[begin:end].view_as(parameter)
            parameter.grad = self.gradients[begin:end].view_as(parameter)
            begin = end

    def compute_gradients(self, images, labels, rows):
        """Computes the part of these rows in the gradient of the mean loss of so many rows. There may be no rows here."""
        self.gradients.zero_()
        if len(labels):
            (F.nll_loss(self.net(images.double()), labels, reduction="sum") / rows).backward()

    def accuracy_on(self, images, labels):
        with torch.no_grad():
            return (self.net(images.double()).argmax(1) == labels).double().mean().item()


class Roles:
    """Says what each rank does: ranks from 0 on are workers, and the last ones are the servers of shards 0, 1, ..."""

    def __init__(self, servers):
        self.workers = rueda.size() - servers
        self.servers = list(range(self.workers, rueda.size()))
        self.shard = rueda.rank() - self.workers  # of a server; less than 0: this is a worker
        # Every rank adds all sets, also those that it is not in. One server and all workers are the set that is always there.
        self.sets = ([rueda.global_process_set] if servers == 1 else
                     [rueda.add_process_set([*range(self.workers), server]) for server in self.servers])

    def push(self, shard, gradient):
        """Starts adding up the workers' gradients on the shard's server; its handle gives the sum there, and None here."""
        return rueda.reduce_async(gradient.numpy(), self.servers[shard], name=f"push.{shard}", op=rueda.Sum,
                                  process_set=self.sets[shard])

    def pull(self, shard, weights):
        """Starts overwriting these weights with the server's."""
        return rueda.broadcast_async_(weights.numpy(), self.servers[shard], name=f"pull.{shard}", process_set=self.sets[shard])

    def agrees(self, shard, weights):
        """Returns whether all who have this shard have the same bits."""
        digest = np.array([zlib.crc32(weights.numpy().tobytes())], np.int64)
        least, greatest = (rueda.allreduce(digest, name=f"digest.{shard}.{op}", op=op, process_set=self.sets[shard])
                           for op in (rueda.Min, rueda.Max))
        return bool(least[0] == greatest[0])


class Worker:
    """Computes gradients, and keeps a copy of all weights."""

    def __init__(self, roles, arguments):
        self.roles, self.arguments = roles, arguments
        training, testing = load_data()
        self.training, self.testing = tensors_of(training), tensors_of(testing)
        self.model = Model(shared_vector)
        self.weights = self.model.weights.tensor_split(len(roles.servers))
        self.gradients = self.model.gradients.tensor_split(len(roles.servers))
        self.pull()

    def pull(self):
        for handle in [self.roles.pull(shard, weights) for shard, weights in enumerate(self.weights)]:
            rueda.synchronize(handle)

    def train(self, exchange):
        """Computes the gradient of this worker's rows of each batch; `exchange` then pushes it, and pulls new weights."""
        images, labels = self.training
        for batch in global_batches(len(labels), self.arguments.epochs):
            own = batch[rueda.rank()::self.roles.workers]
            self.model.compute_gradients(images[own], labels[own], len(batch))
            exchange()

    def train_synchronously(self):
        def exchange():
            handles = [self.roles.push(shard, gradient) for shard, gradient in enumerate(self.gradients)]
            handles += [self.roles.pull(shard, weights) for shard, weights in enumerate(self.weights)]
            for handle in handles:
                rueda.synchronize(handle)

        self.train(exchange)

    def train_asynchronously(self):
        def exchange():
            works = [dist.irecv(weights, server, tag=PULL) for weights, server in zip(self.weights, self.roles.servers)]
            works += [dist.isend(gradient, server, tag=PUSH) for gradient, server in zip(self.gradients, self.roles.servers)]
            for work in works:
                work.wait()

        *others, last = range(self.roles.workers)
        is_late = self.arguments.late_worker and rueda.rank() == last
        for other in others if is_late else ():
            dist.recv(torch.empty(0), other, tag=DONE)
        self.train(exchange)
        if self.arguments.late_worker and not is_late:
            dist.send(torch.empty(0), last, tag=DONE)
        self.pull()

    def finish(self):
        """Returns what is wrong with the trained weights."""
        failures = [f"shard {shard} is not the same on all ranks" for shard, weights in enumerate(self.weights)
                    if not self.roles.agrees(shard, weights)]
        stats = rueda.stats()
        print(f"worker {rueda.rank()} has copied {stats.bytes_copied_in + stats.bytes_copied_out} bytes into shared memory and back",
              flush=True)
        accuracy = self.model.accuracy_on(*self.testing)
        if rueda.rank() == 0:
            print(f"{self.roles.workers} workers and {len(self.roles.servers)} servers: accuracy {accuracy:.4f}", flush=True)
        if accuracy < REQUIRED_ACCURACY:
            failures.append(f"accuracy {accuracy:.4f} is below {REQUIRED_ACCURACY}")
        if self.arguments.check_reference and rueda.rank() == 0:
            difference = (self.model.weights - train_alone(self.arguments.epochs)).abs().max().item()
            print(f"largest difference to the weights of one process: {difference:.1e}", flush=True)
            if not difference <= TOLERANCE:
                failures.append(f"a weight differs from that of one process by {difference:.1e}")
        return failures


class Server:
    """Keeps one shard of the weights, and of the optimizer's state."""

    def __init__(self, roles, arguments):
        self.roles = roles
        rows = len(load_data()[0])
        self.steps = sum(1 for _ in global_batches(rows, arguments.epochs))  # of a worker
        initial = Model(private_vector).weights.tensor_split(len(roles.servers))[roles.shard]
        self.weights, self.gradient = (shared_vector(len(initial)) for _ in range(2))
        self.weights.copy_(initial)
        self.gradient.zero_()
        self.optimizer = make_optimizer([self.weights], arguments.asynchronous)
        self.pull()

    def pull(self):
        rueda.synchronize(self.roles.pull(self.roles.shard, self.weights))

    def step(self, gradient):
        self.weights.grad = gradient
        self.optimizer.step()

    def train_synchronously(self):
        for _ in range(self.steps):
            total = rueda.synchronize(self.roles.push(self.roles.shard, self.gradient))  # its own gradient stays zero
            self.step(torch.from_numpy(total))
            self.pull()

    def train_asynchronously(self):
        answers = [private_vector(len(self.weights)) for _ in range(self.roles.workers)]
        sending = {}
        pulled = [0] * self.roles.workers  # after how many steps each worker has pulled
        staleness = []
        for version in range(self.steps * self.roles.workers):
            worker = dist.recv(self.gradient, tag=PUSH)  # from whichever comes first
            staleness.append(version - pulled[worker])
            self.step(self.gradient)
            pulled[worker] = version + 1
            if worker in sending:
                sending[worker].wait()
            # The next gradient may come while this answer is on its way, so it is a copy.
            answers[worker].copy_(self.weights)
            sending[worker] = dist.isend(answers[worker], worker, tag=PULL)
        for work in sending.values():
            work.wait()
        print(f"server {self.roles.shard}: {len(staleness)} gradients, staleness at most {max(staleness)}, mean "
              f"{sum(staleness) / len(staleness):.2f}", flush=True)
        self.pull()

    def finish(self):
        is_same = self.roles.agrees(self.roles.shard, self.weights)
        return [] if is_same else [f"shard {self.roles.shard} is not the same on all ranks"]


def train_alone(epochs):
    """Returns the weights after the training in one process, without servers."""
    images, labels = tensors_of(load_data()[0])
    model = Model(private_vector)
    optimizer = make_optimizer(model.net.parameters())
    for batch in global_batches(len(labels), epochs):
        model.compute_gradients(images[batch], labels[batch], len(batch))
        optimizer.step()
    return model.weights


def main():
    parser = argparse.ArgumentParser(description="Trains on handwritten digits with parameter servers.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=1, help="how many of the ranks keep weights; all others compute")
    parser.add_argument("--asynchronous", action="store_true", help="no worker waits for another one")
    parser.add_argument("--late-worker", action="store_true",
                        help="with --asynchronous: the last worker begins when the others have ended, as a very slow one would")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--check-reference", action="store_true",
                        help="compare the weights with those of one process (not with --asynchronous)")
    arguments = parser.parse_args()
    if arguments.asynchronous and arguments.check_reference:
        parser.error("--check-reference: asynchronous training is that of no single process")
    if arguments.late_worker and not arguments.asynchronous:
        parser.error("--late-worker: the others would wait for it; give it with --asynchronous")

    rueda.init()
    torch.set_num_threads(1)
    if not 1 <= arguments.servers < rueda.size():
        print(f"--servers {arguments.servers} of {rueda.size()} ranks: it takes a server and a worker at least", file=sys.stderr)
        return 2
    roles = Roles(arguments.servers)
    role = (Worker if roles.shard < 0 else Server)(roles, arguments)
    if arguments.asynchronous:
        dist.init_process_group("rueda")
        role.train_asynchronously()
        dist.destroy_process_group()
    else:
        role.train_synchronously()
    failures = role.finish()
    for failure in failures:
        print(f"rank {rueda.rank()}: FAILED: {failure}", file=sys.stderr, flush=True)
    # If one rank fails, all fail.
    failed = rueda.allreduce(np.array([len(failures)], np.int64), op=rueda.Max, name="failed")
    rueda.shutdown()
    return 0 if failed[0] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
