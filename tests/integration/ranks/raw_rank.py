#!/usr/bin/python3
"""Runs a rank that attaches without librueda, breaks the protocol in one way, and prints what the daemon said.

Run as: raw_rank.py HOW. The ways are the functions below."""

import os
import signal
import socket
import struct
import sys

from raw_client import ARENA_ADD, REPLY, STARTED, STATUS_FORMAT, VERSION, RawClient, submission, text_of

COUNT = 1024
ARENA_BYTES = 8192


def attached():
    client = RawClient()
    code, text = client.attach()
    if code != 0:
        sys.exit(f"refused: {code} {text}")
    client.receive_only(STARTED)
    client.add_arena(ARENA_BYTES)
    return client, client.intern("raw", COUNT)


def expect_end(client):
    code, text = client.failure()
    print(f"failed {code}: {text}", flush=True)
    try:
        while True:
            client.receive()
    except (EOFError, ConnectionResetError):
        print("closed", flush=True)


def wild_record(**fields):
    client, tensor = attached()
    client.submit(submission(fields.pop("tensor_id", tensor), **fields))
    expect_end(client)


def wild_tail(distance):
    client, _ = attached()
    client.set_tail(distance)
    expect_end(client)


def other_version():
    client = RawClient()
    code, text = client.attach(version=VERSION + 7)
    print(f"refused {code}: {text}", flush=True)


def other_user():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    wrong_attach()


def wrong_attach(**fields):
    code, text = RawClient().attach(**fields)
    print(f"refused {code}: {text}", flush=True)


def wrong_token():
    wrong_attach(token=bytes(32))


def unknown_job():
    wrong_attach(job="no-such-job")


def wrong_rank():
    wrong_attach(rank=77)


def another_rank():
    """Says with a token of its own that it is the other rank of the node."""
    other = 1 - int(os.environ["RANK"])
    wrong_attach(rank=other, local_rank=other)


def lingering():
    """Sends, in place of an arena, a socket whose last close sleeps until the other end is gone."""
    print(f"pid {os.getpid()}", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    client, _ = attached()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    # The daemon must be the last to close it, so it is stopped, and looks when this process has gone.
    daemon, _, _ = struct.unpack("iII", client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(daemon, signal.SIGSTOP)
    client.send(ARENA_ADD, struct.pack("<QII", 4096, 0, 0), [near.fileno()] * 4)
    near.close()
    os.kill(daemon, signal.SIGCONT)
    _, _, text = struct.unpack(STATUS_FORMAT, client.receive_only(REPLY))
    print(f"lingers: {text_of(text)}", flush=True)
    signal.sigwait([signal.SIGTERM])
    far.close()


WAYS = {
    "lingering": lingering,
    "input-beyond": lambda: wild_record(offsets=(ARENA_BYTES, 0)),
    "output-beyond": lambda: wild_record(offsets=(0, ARENA_BYTES - 4)),
    "offset-wraps": lambda: wild_record(offsets=(2**64 - 4, 0)),
    "unaligned": lambda: wild_record(offsets=(2, 4098)),
    "overlap": lambda: wild_record(offsets=(0, 64)),
    "no-arena": lambda: wild_record(arenas=(99, 1)),
    "no-tensor": lambda: wild_record(tensor_id=12345),
    "flags": lambda: wild_record(flags=0x80),
    "reserved": lambda: wild_record(reserved=1),
    "tail": lambda: wild_tail(2**40),
    "tail-back": lambda: wild_tail(2**64 - 1),
    "other-version": other_version,
    "other-user": other_user,
    "wrong-token": wrong_token,
    "unknown-job": unknown_job,
    "wrong-rank": wrong_rank,
    "another-rank": another_rank,
}


if __name__ == "__main__":
    WAYS[sys.argv[1]]()
