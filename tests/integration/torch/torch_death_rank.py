"""Ranks of which one is killed while the others wait for it: torch_death_rank.py FILE training|synchronize. They say what
they caught, and how long after the death. In training, rank 2 dies before it has gradients. With `synchronize`, rank 2
has submitted an operation itself, and dies once all others sit in synchronize, for what it does not submit."""

import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import rueda.torch as hvd  # noqa: E402
import torch  # noqa: E402

VICTIM = 2


def say_what_is_caught(wait, path):
    """Returns True if an exception was caught."""
    try:
        wait()
    except hvd.HorovodInternalError as error:
        caught_s = time.monotonic()
        with open(path, encoding="utf-8") as file:
            died_s = float(file.read())
        print(f"caught after {caught_s - died_s:.3f} s: {error}", flush=True)
        return True
    return False


def die(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def train(path):
    model = torch.nn.Linear(1000, 10)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    for step in range(6):
        optimizer.zero_grad()
        if step == 5 and hvd.rank() == VICTIM:
            die(path)
        model(torch.ones(2, 1000)).sum().backward()
        if say_what_is_caught(optimizer.step, path):
            return
    print("nothing was caught", flush=True)


def sleeping(process_id):
    """Returns whether the process's main thread waits in the kernel."""
    with open(f"/proc/{process_id}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def synchronize(path):
    others = [int(number) for number in hvd.allgather(torch.tensor([os.getpid()]), name="processes")
              if int(number) != os.getpid()]
    handle = hvd.allreduce_async(torch.ones(1 << 16), name="all have it")
    hvd.synchronize(handle)
    if hvd.rank() == VICTIM:
        in_flight = hvd.allreduce_async(torch.ones(1 << 16), name="only the victim has it")
        deadline_s = time.monotonic() + 60
        in_a_row = 0
        while in_a_row < 20 and time.monotonic() < deadline_s:
            in_a_row = in_a_row + 1 if all(sleeping(other) for other in others) else 0
            time.sleep(0.01)
        print(f"all others wait: {in_a_row == 20}; done: {hvd.poll(in_flight)}", flush=True)
        die(path)
    handle = hvd.allreduce_async(torch.ones(1 << 16), name="the victim lacks it")
    if not say_what_is_caught(lambda: hvd.synchronize(handle), path):
        print("nothing was caught", flush=True)


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the job; first we want to have our say
    hvd.init()
    {"training": train, "synchronize": synchronize}[sys.argv[2]](sys.argv[1])


if __name__ == "__main__":
    main()
