"""A rank that trains until rank 2 kills itself, while the others wait for its gradients. They say what
they caught, and how long after the death."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import rueda.torch as hvd  # noqa: E402
import torch  # noqa: E402

VICTIM = 2


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the job; first we want to have our say
    hvd.init()
    path = sys.argv[1]
    model = torch.nn.Linear(1000, 10)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    for step in range(6):
        optimizer.zero_grad()
        if step == 5 and hvd.rank() == VICTIM:
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(2, 1000)).sum().backward()
        try:
            optimizer.step()
        except hvd.HorovodInternalError as error:
            caught_s = time.monotonic()
            with open(path, encoding="utf-8") as file:
                died_s = float(file.read())
            print(f"caught after {caught_s - died_s:.3f} s: {error}", flush=True)
            return
    print("nothing was caught", flush=True)


if __name__ == "__main__":
    main()
