"""Finds the process's place in the job, however the process was started, and holds what all groups of a process share."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
from collections import Counter
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .._core import _context, _operations, _parts
from .._core._errors import RuedaError
from .._torch_common import _device
from ._futures import LastOfNames, Turns
from ._peers import SECRET_BYTES, Peers
from ._sets import Sets

_ENDPOINT = "RUEDA_RDZV_ENDPOINT"
_ADDRESS_BYTES = 64
# This many groups of the same ranks have names of their own at a time. A program may make and destroy groups for ever, and a
# job's names are not forgotten.
_ALIKE = 64
_LOG = logging.getLogger("rueda.distributed")


class Session:
    """Lasts from the first init_process_group until the process ends, whatever groups come and go: leaving the job and joining it
    again would cost more. Only a world of another size, which all its ranks see at once, begins another session. Its parts are
    thread-safe."""

    def __init__(self, store: Any) -> None:
        self.rank = _context.rank()
        self.size = _context.size()
        self.number = _context.session()
        self.peers = Peers(self.rank, own_host(store), self._on_message)
        self.sets: Optional[Sets] = None
        self._made: "Counter[Tuple[int, ...]]" = Counter()
        self._last: "Dict[Tuple[Tuple[int, ...], int], LastOfNames]" = {}
        self._left: List[Turns] = []
        self._making = threading.Lock()
        addresses, secret = self._meet()
        self.sets = Sets(self.rank, self.size, self.peers.tell)
        self.peers.start(addresses, secret)

    def count_group(self, ranks: Sequence[int]) -> "Tuple[int, int, LastOfNames]":
        """Returns how many groups of these ranks were made before, which is the same on all of them; a number that is part of the
        names of the group's operations, and is used again later; and the operations that were begun under the names with that
        number."""
        key = tuple(ranks)
        with self._making:
            self._left = [turns for turns in self._left if turns.is_busy()]
            made = self._made[key]
            self._made[key] += 1
            ordinal = made % _ALIKE
            return made, ordinal, self._last.setdefault((key, ordinal), LastOfNames())

    def leave_group(self, ranks: List[int], turns: Turns) -> None:
        """Ends the use of a group. Its operations in flight go on, and keep their memory. It may be called on any thread, at any
        moment."""
        if self.sets is not None:
            self.sets.release(ranks)
        turns.close()
        if turns.is_busy():
            self._left.append(turns)

    def close(self) -> None:
        self.peers.close()
        if self.sets is not None:
            self.sets.close()

    def _meet(self) -> "Tuple[List[Tuple[str, int]], bytes]":
        host, port = self.peers.address
        own = np.zeros((1, _ADDRESS_BYTES), np.uint8)
        text = f"{port} {host}".encode()
        own[0, :len(text)] = np.frombuffer(text, np.uint8)
        told = _parts.allgather(own, name="rueda.distributed.addresses")
        addresses = []
        for row in told:
            their_port, their_host = bytes(row).rstrip(b"\0").decode().split(" ", 1)
            addresses.append((their_host, int(their_port)))
        secret = np.frombuffer(secrets.token_bytes(SECRET_BYTES), np.uint8).copy()
        _operations.broadcast_(secret, 0, name="rueda.distributed.secret")
        return addresses, secret.tobytes()

    def _on_message(self, rank: int, message: Any) -> None:
        if self.sets is not None:
            self.sets.on_message(rank, message)


_session: Optional[Session] = None
_joined = -1  # the number of the last session that was begun here, and not by rueda.init() or by rueda.torch's
_starting = threading.Lock()


def session(store: Any, rank: int, size: int, timeout: timedelta) -> Session:
    """Returns the process's session, and joins the job if that has not been done. `rank` and `size` are what PyTorch was told.

    Raises:
        RuntimeError: the text says what does not fit, or what is missing.
    """
    global _session, _joined
    with _starting:
        if _context.session() == _joined and _context.size() != size and "RUEDA_JOB_ID" not in os.environ:
            leave()
        if not _context.is_initialized():
            _join(store, rank, size, timeout)
            _joined = _context.session()
        if (rank, size) != (_context.rank(), _context.size()):
            raise RuntimeError(f"init_process_group was told rank {rank} of {size}, but this process is rank "
                               f"{_context.rank()} of {_context.size()} of Rueda's job, whose ranks stay as they are: leave rank "
                               "and world_size to the environment, and give new_group the ranks of a smaller group")
        if _session is None or _session.number != _context.session():
            _end_session()
            _device.watch_frees()
            _session = Session(store)
            atexit.register(_session.close)
        return _session


def current() -> Session:
    """Returns the session.

    Raises:
        RuntimeError: init_process_group has not been called.
    """
    if _session is None:
        raise RuntimeError("init_process_group(\"rueda\") comes first")
    return _session


# The ranks that go on are a job of their own, which they join as they joined the last one.
def leave() -> None:
    """Leaves the job, however it stands."""
    rank = _context.rank()
    _end_session()
    try:
        _context.shutdown()
    except RuedaError as error:  # as when another rank has left it by ending
        _LOG.warning("rank %d left the job whose world was of another size: %s", rank, error)


def _end_session() -> None:
    global _session
    if _session is not None:
        ended, _session = _session, None
        atexit.unregister(ended.close)
        ended.close()


# ruedarun has put everything into the environment. For ranks that something else has started, librueda finds the others, at a
# place that rank 0 chooses.
def _join(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    said = {"RANK": str(rank), "WORLD_SIZE": str(size)}
    if "RUEDA_JOB_ID" not in os.environ:
        said["RUEDA_LAUNCH_ID"] = _agreed(store, rank, "launch", lambda: secrets.token_hex(8))
        if _ENDPOINT not in os.environ:
            said[_ENDPOINT] = _agreed(store, rank, "endpoint", lambda: _free_endpoint(store))
    kept = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        _context.init(timeout=timeout.total_seconds() or None)
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# torchrun keeps its store when it starts the ranks again (PyTorch 2; 1.13 gives each attempt a prefix), so an attempt must not
# read what an earlier attempt wrote.
def _agreed(store: Any, rank: int, what: str, make: Any) -> str:
    key = f"rueda/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{what}"
    if rank == 0:
        store.set(key, make())
    return bytes(store.get(key)).decode()


def _free_endpoint(store: Any) -> str:
    host = own_host(store)
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        port = server.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Returns this machine's address as the other ranks reach it: the address from which it would reach the store, or the master.
def own_host(store: Any) -> str:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    master = str(getattr(store, "host", "") or os.environ.get("MASTER_ADDR", "localhost"))
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # the socket is for datagrams, so nothing is sent
                return str(probe.getsockname()[0])
    except OSError as error:
        raise RuntimeError(f"MASTER_ADDR={master!r} cannot be reached from here ({error}); set it to rank 0's "
                           "address") from None
    raise RuntimeError(f"MASTER_ADDR={master!r} has no address; set it to rank 0's")
