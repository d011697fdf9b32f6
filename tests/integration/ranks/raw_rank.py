#!/usr/bin/python3
"""Runs a rank that attaches without librueda, breaks the protocol in one way, and prints what the daemon said.

Run as: raw_rank.py HOW. The ways are the functions below."""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import threading

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


class FuseFile:
    """A file of a file system that this process serves. Whoever else closes it sleeps until this process ends."""

    GETATTR, OPEN, FLUSH, INIT = 3, 14, 25, 26
    UNANSWERED = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
    HEADER = "<IIQQIIII"
    ATTRIBUTES = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, 4096, 0)

    def __init__(self, folder):
        self.path = os.path.join(folder, "fuse")
        with open(self.path, "wb"):
            pass
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open("/dev/fuse", os.O_RDWR)
        self._check(self._libc.unshare(0x20000))  # CLONE_NEWNS: the mount goes with this process, however that ends
        self._check(self._libc.mount(b"none", b"/", None, 0x44000, None))  # MS_REC | MS_PRIVATE
        options = f"fd={self._device},rootmode=100666,user_id=0,group_id=0,allow_other"
        self._check(self._libc.mount(b"fuse", self.path.encode(), b"fuse", 0, options.encode()))
        threading.Thread(target=self._serve, daemon=True).start()
        self.fd = os.open(self.path, os.O_RDONLY)

    def _check(self, result):
        if result != 0:
            os.unlink(self.path)
            print(f"cannot be: {os.strerror(ctypes.get_errno())}", flush=True)
            sys.exit(0)

    def _serve(self):
        while True:
            try:
                request = os.read(self._device, 1 << 17)
            except OSError:
                return  # it is mounted no more
            _, opcode, unique, _, _, _, thread, _ = struct.unpack_from(self.HEADER, request)
            if opcode in self.UNANSWERED:
                continue
            if opcode == self.FLUSH and not os.path.exists(f"/proc/self/task/{thread}"):
                continue  # it is the daemon that closes it
            body = {self.INIT: struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 1, 1, 1 << 16, 1, 1, 0, 0),
                    self.GETATTR: struct.pack("<QII", 3600, 0, 0) + self.ATTRIBUTES, self.OPEN: struct.pack("<QII", 1, 0, 0)}
            os.write(self._device, struct.pack("<IiQ", 16 + len(body.get(opcode, b"")), 0, unique) + body.get(opcode, b""))

    def end(self):
        os.close(self.fd)
        self._libc.umount2(self.path.encode(), 2)
        os.unlink(self.path)


def fuse():
    """Sends, in place of an arena, a file whose close sleeps for as long as this process likes."""
    print(f"pid {os.getpid()}", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    file = FuseFile(os.environ["TMPDIR"])
    client, _ = attached()
    client.send(ARENA_ADD, struct.pack("<QII", 4096, 0, 0), [file.fd] * 4)
    _, _, text = struct.unpack(STATUS_FORMAT, client.receive_only(REPLY))
    print(f"lingers: {text_of(text)}", flush=True)
    signal.sigwait([signal.SIGTERM])
    file.end()


def holes():
    """Shares memory of which it has touched nothing: whoever touches a page first pays for it."""
    client, _ = attached()
    fd = os.memfd_create("holes", os.MFD_ALLOW_SEALING)
    size = 1 << 30
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    client.send(ARENA_ADD, struct.pack("<QII", size, 0, 0), [fd])
    code, _, text = struct.unpack(STATUS_FORMAT, client.receive_only(REPLY))
    print(f"refused {code}: {text_of(text)}", flush=True)


WAYS = {
    "holes": holes,
    "lingering": lingering,
    "fuse": fuse,
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
