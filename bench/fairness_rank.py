"""Runs a rank of bench/fairness.py, or a process that is in no job:

    measure STEPS LARGE_STEPS    prints one line of JSON, the times of rank 0's all-reduces in seconds
    spinning, flooding, full     as ranks
    plans RUEDARUN SOCKET FOLDER
    data HOST:PORT, http HOST:PORT
    knocking SOCKET, lingering SOCKET

All but the first print a line and then do so until they are ended; fairness.py says what it is."""

import collections
import concurrent.futures
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import time

WAITS_FOR_OFFSET = 200


def measure(steps, large_steps):
    import numpy as np

    import rueda
    rueda.init()

    def times_of(name, tensor, warmup, count):
        times = []
        for step in range(-warmup, count):
            begin = time.perf_counter()
            rueda.allreduce(tensor, name=name)
            if step >= 0:
                times.append(time.perf_counter() - begin)
        return times

    seconds = times_of("small", np.ones(1 << 10, np.float32), 100, steps)
    large_seconds = times_of("large", np.ones(16 << 20, np.float32), 3, large_steps)
    if rueda.rank() == 0:
        print(json.dumps({"seconds": seconds, "large_seconds": large_seconds}), flush=True)
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


def connect(address, says):
    """Returns a connection over which that was said, or None if there was none to be had."""
    host, _, port = address.rpartition(":")
    try:
        one = socket.create_connection((host, int(port)), timeout=1)
    except OSError:
        time.sleep(0.01)  # The port is at its limits, or this machine has no descriptor left.
        return None
    try:
        one.sendall(says)
    except OSError:
        pass
    return one


def come_and_go(address, *sayings):
    """Opens connections without end, which say the one or the other, and keeps the newest."""
    print("begun", flush=True)
    kept = collections.deque()
    for says in itertools.cycle(sayings):
        if (one := connect(address, says)) is not None:
            kept.append(one)
        if len(kept) > 200:
            kept.popleft().close()


def data(address):
    come_and_go(address, b"RUDH\x07" + os.urandom(123), b"")


def http(address):
    come_and_go(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 8, b"GET /healthz HTTP/1.1\r\nX: ")


def knock(path):
    """Connects and hangs up, with and without a word."""
    print("begun", flush=True)
    for says in itertools.cycle((b"", b"RUDA", b"x")):
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.connect(path)
                one.send(says)
            except OSError:
                pass  # It is refused, or has been hung up on.


def plans(ruedarun, path, folder):
    """Registers a job with the plan that costs most to check: a long chain with many ways to end."""
    plan = os.path.join(folder, "plan")

    def batch(number, after):
        tensor = {"name": f"t{number}", "shape": [1], "root": -1, "prescale": 1, "postscale": 1}
        return {"tensors": [tensor], "after": after, "ends": number >= 20000}

    with open(plan, "w", encoding="ascii") as file:
        json.dump({"batches": [batch(number, min(number, 20000)) for number in range(20064)]}, file)
    command = [ruedarun, "--no-prefix", "-np", "1", "--socket", path, f"--plan={plan}", "true"]
    first = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if first.returncode != 0:
        sys.exit(f"ruedarun: {first.stdout}{first.stderr}")
    print("begun", flush=True)
    while True:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def lingering_socket(server):
    """Returns a socket with bytes that nobody reads, and its other end: its last close sleeps for some seconds."""
    near = socket.socket()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near.connect(server.getsockname())
    far, _ = server.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3))
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(1 << 16))
    except BlockingIOError:
        return near, far


def linger(path):
    """Sends such sockets over connections that say nothing else."""
    far_ends = collections.deque()
    print("begun", flush=True)
    # The daemon is to be the last who closes one. If it was not, a thread sleeps here.
    with socket.create_server(("127.0.0.1", 0)) as server, concurrent.futures.ThreadPoolExecutor(64) as closers:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while True:
            near, far = lingering_socket(server)
            far_ends.append(far)
            if len(far_ends) > 400:
                far_ends.popleft().close()
            try:
                with socket.socket(socket.AF_UNIX) as one:
                    one.connect(path)
                    socket.send_fds(one, [b"RU"], [near.fileno()] * 200)
            except OSError:
                # This user is refused for a while, or the kernel lets nobody send descriptors there.
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            closers.submit(near.close)


def main():
    ways = {"measure": lambda *steps: measure(*map(int, steps)), "spinning": spin, "flooding": flood, "full": fill,
            "data": data, "http": http, "plans": plans, "knocking": knock,
            "lingering": linger}
    ways[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
