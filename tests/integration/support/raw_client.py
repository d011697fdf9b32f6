"""A client that speaks the local ABI (docs/abi.md) by itself, right or wrong, without librueda.

Reads its place from what ruedarun sets in the environment. The numbers are those of
client/abi/rueda_abi.h.
"""

import fcntl
import mmap
import os
import socket
import struct

MAGIC = 0x41445552
VERSION = 18
ATTACH, ATTACH_REPLY, STARTED, FAILED, ARENA_ADD, _, INTERN, REPLY, DETACH = range(1, 10)
RING_HEADER_BYTES = 4096
ATTACH_REPLY_FORMAT = "<iIII1024s"
STATUS_FORMAT = "<iI1024s"
TAIL_OFFSET = 64


def text_of(raw):
    return raw.split(b"\0", 1)[0].decode()


def own_token():
    """Returns the token of this rank. The descriptor stays open, for a program of the rank that comes after this one."""
    return bytes.fromhex(os.pread(int(os.environ["RUEDA_JOB_TOKEN_FD"]), 64, 0).decode())


class RawClient:
    """One connection. Nothing is sent before attach()."""

    def __init__(self, path=None):
        path = path or os.environ["RUEDA_SOCKET"]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect("\0" + path[1:] if path.startswith("@") else path)
        self.fds = []
        self._input = b""

    def send(self, kind, body=b"", fds=(), version=VERSION):
        header = struct.pack("<IHHII", MAGIC, version, kind, len(body), 0)
        if fds:
            socket.send_fds(self.socket, [header + body], fds)
        else:
            self.socket.sendall(header + body)

    def _read(self, count):
        while len(self._input) < count:
            data, fds, _, _ = socket.recv_fds(self.socket, 65536, 8)
            if not data:
                raise EOFError("the daemon closed the connection")
            self._input += data
            self.fds += fds
        taken, self._input = self._input[:count], self._input[count:]
        return taken

    def receive(self):
        """Returns (type, body, version) of the next message."""
        _, version, kind, size, _ = struct.unpack("<IHHII", self._read(16))
        return kind, self._read(size), version

    def receive_only(self, wanted):
        """Returns the body of the next message of one type; others are dropped."""
        while True:
            kind, body, _ = self.receive()
            if kind == wanted:
                return body

    def attach(self, *, job=None, token=None, rank=None, local_rank=None, version=VERSION):
        """Returns (code, text) of the daemon's answer."""
        job = job if job is not None else os.environ["RUEDA_JOB_ID"]
        token = token if token is not None else own_token()
        rank = rank if rank is not None else int(os.environ["RANK"])
        local_rank = local_rank if local_rank is not None else int(os.environ["LOCAL_RANK"])
        self.send(ATTACH, struct.pack("<64s32sii", job.encode(), token, rank, local_rank), version=version)
        body = self.receive_only(ATTACH_REPLY)
        code, self.capacity, _, _, text = struct.unpack(ATTACH_REPLY_FORMAT, body)
        if code == 0:
            size = RING_HEADER_BYTES + self.capacity * 64
            self.submissions = mmap.mmap(self.fds[0], size)
        return code, text_of(text)

    def _request(self, kind, body, fds=()):
        self.send(kind, body, fds)
        code, value, text = struct.unpack(STATUS_FORMAT, self.receive_only(REPLY))
        if code != 0:
            raise RuntimeError(text_of(text))
        return value

    def add_arena(self, size):
        fd = os.memfd_create("raw-arena", os.MFD_ALLOW_SEALING)
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return self._request(ARENA_ADD, struct.pack("<QII", size, 0, 0), [fd])

    def intern(self, name, count, kind=0, dtype=0, op=0):
        dims = [count] + [0] * 7
        return self._request(INTERN, struct.pack("<BBBBiIIddiiIIII8q256s256s", kind, dtype, op, 1, -1, 0, 0, 1.0, 1.0, 0, 0, 0, 0, 0, 0,
                                                 *dims, name.encode(), b""))

    def submit(self, record):
        """Writes 64 bytes into the submission ring as they are, and rings the bell."""
        tail, = struct.unpack_from("<Q", self.submissions, TAIL_OFFSET)
        at = RING_HEADER_BYTES + (tail % self.capacity) * 64
        self.submissions[at:at + 64] = record
        self.set_tail(tail + 1)

    def set_tail(self, tail):
        struct.pack_into("<Q", self.submissions, TAIL_OFFSET, tail)
        os.write(self.fds[2], struct.pack("<Q", 1))

    def failure(self):
        """Returns (code, text) of the message that ends the session."""
        code, _, text = struct.unpack(STATUS_FORMAT, self.receive_only(FAILED))
        return code, text_of(text)


def submission(tensor_id, *, ticket=1, flags=0, arenas=(1, 1), offsets=(0, 0), reserved=0):
    return struct.pack("<QIIIIQQiIQQ", ticket, tensor_id, flags, *arenas, *offsets, 0, reserved, 0, 0)
