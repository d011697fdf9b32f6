"""A rank of bench/fairness.py: `measure STEPS` prints one line of JSON, the times of rank 0's all-reduces in seconds;
`spinning` and `flooding` print a line and then do so until they are ended."""

import json
import os
import struct
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
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "integration"))
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
    elif sys.argv[1] == "spinning":
        spin()
    else:
        flood()


if __name__ == "__main__":
    main()
