"""Trains ResNet-50 on noise, as any script does. Before each step it waits for SIGUSR1.

first_step_rank.py STEPS"""

import os
import signal
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import rueda.torch as hvd  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    hvd.init()
    print(f"pid {os.getpid()}", flush=True)
    model = torchvision.models.resnet50(num_classes=10)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    steps = int(sys.argv[1])
    for step in range(steps + 1):
        print(f"done {step}", flush=True)
        signal.sigwait({signal.SIGUSR1})
        if step < steps:
            optimizer.zero_grad()
            model(torch.randn(2, 3, 32, 32)).square().mean().backward()
            optimizer.step()
    hvd.shutdown()


main()
