"""Runs a rank of bench/fairness.py: `measure STEPS` prints one line of JSON, the times of rank 0's all-reduces in seconds;
`spinning`, `flooding` and `full` print a line and then do so until they are ended."""

import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import time

WAITS_FOR_OFFSET = 200


def measure(steps):
    import numpy as np

    import rueda
    rueda.init()
    tensor = np.ones(1024, np.float32)
    times = []
    for step in range(-100, steps):
        begin = time.perf_counter()
        rueda.allreduce(tensor, name="small")
        if step >= 0:
            times.append(time.perf_counter() - begin)
    if rueda.rank() == 0:
        print(json.dumps({"seconds": times}), flush=True)
    rueda.shutdown()


def attached():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "integration",
                                    "support"))
    import raw_client
    client = raw_client.RawClient()
    code, text = client.attach()
    if code != 0:
        sys.exit(f"refused: {text}")
    client.receive_only(raw_client.STARTED)
    return client


def spin():
    client = attached()
    print("spinning", flush=True)
    ticket = 0
    while True:
        ticket += 1
        struct.pack_into("<Q", client.submissions, WAITS_FOR_OFFSET, ticket)
        os.write(client.fds[2], struct.pack("<Q", 1))


def is_refused(client):
    """Returns whether one more connection than those of `held` is refused."""
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(1)
    one.connect(os.environ["RUEDA_SOCKET"])
    try:
        one.sendall(b"RU")
        one.settimeout(0.01)
        if one.recv(64) == b"":
            return True
    except TimeoutError:
        pass
    except OSError:
        return True
    client.held.append(one)
    return False


def asks(client, kind, name):
    """Asks for one more, and returns whether it was refused."""
    try:
        if kind == "tensor":
            client.intern(name, 1)
        else:
            client.add_arena(16 << 20)
        return False
    except RuntimeError as error:
        if "quota" not in str(error):
            raise
        return True


def fill():
    client = attached()
    client.held = []
    names = (f"t{number}" for number in itertools.count())
    while not asks(client, "tensor", next(names)):
        pass
    while not asks(client, "arena", ""):
        pass
    ruedarun = os.path.join(os.path.dirname(os.environ["RUEDA_LIBRARY"]), "..", "bin", "ruedarun")
    jobs = []
    while not jobs or jobs[-1].poll() is None:
        jobs.append(subprocess.Popen([ruedarun, "--socket", os.environ["RUEDA_SOCKET"], "-np", "1", "sleep", "100000"],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        time.sleep(0.3)
    said = jobs[-1].stderr.read().decode()
    if "--quota-jobs" not in said:
        sys.exit(f"ruedarun: {said}")
    while not is_refused(client):
        pass
    print("full", flush=True)
    while True:
        asks(client, "tensor", next(names))
        asks(client, "arena", "")
        is_refused(client)


def flood():
    import numpy as np

    import rueda
    rueda.init()
    tensor = np.ones(1, np.float32)
    print("flooding", flush=True)
    while True:
        handles = [rueda.allreduce_async(tensor, name=f"flood{number}") for number in range(256)]
        for handle in handles:
            rueda.synchronize(handle)


def main():
    if sys.argv[1] == "measure":
        measure(int(sys.argv[2]))
    else:
        {"spinning": spin, "flooding": flood, "full": fill}[sys.argv[1]]()


if __name__ == "__main__":
    main()
