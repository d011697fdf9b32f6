"""Tells other ranks of a job what they must do, who may be doing anything else: who asks for which process sets, and which come and
go (_sets.py). A thread of its own runs an asyncio loop. Each rank listens; a rank that tells another one something connects to it,
and keeps that connection. Connections begin with a secret that the ranks got from each other through the daemons.

A message through the daemons needs a receive, and these messages come at any time to a rank that does nothing for it. A receive
that is always there would be a stall after a minute, would have daemons look at the time once a second, and would have to be taken
back before every rueda_shutdown(), also one that the program calls itself."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hmac
import json
import socket
import struct
import threading
from typing import Any, Callable, Coroutine, Dict, List, NamedTuple, Optional, Tuple

SECRET_BYTES = 32
_HELLO = struct.Struct("!8s32si")  # kMagic, the secret, the sender's rank
_MAGIC = b"rueda-p1"
_HEAD = struct.Struct("!I")  # bytes of the message
_MOST_MESSAGE_BYTES = 1 << 20
_CANCEL_AGAIN_S = 0.1
_CONNECT_S = 30.0
_HELLO_S = 10.0
_BACKLOG = 1024


class PeerError(RuntimeError):
    """A rank could not be told."""


async def _read_into(loop: asyncio.AbstractEventLoop, sock: socket.socket, memory: memoryview) -> None:
    while memory.nbytes:
        count = await loop.sock_recv_into(sock, memory)
        if count == 0:
            raise ConnectionError("it has closed the connection")
        memory = memory[count:]


async def _read(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    await _read_into(loop, sock, memoryview(data))
    return data


class _Writing(NamedTuple):
    """A message that is to be written, when its turn comes."""

    data: bytes
    done: "asyncio.Future[None]"


class _Outgoing:
    """A connection that this rank opens. Messages are written in the order in which they were asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.messages: "asyncio.Queue[_Writing]" = asyncio.Queue()
        self.error: Optional[BaseException] = None

    def write(self, data: bytes) -> "asyncio.Future[None]":
        done: "asyncio.Future[None]" = self._loop.create_future()
        if self.error is not None:
            done.set_exception(self.error)
        else:
            self.messages.put_nowait(_Writing(data, done))
        return done

    def fail(self, error: BaseException) -> None:
        """Ends the connection with an error: nothing more goes."""
        self.error = self.error or error
        while not self.messages.empty():
            waiting = self.messages.get_nowait().done
            if not waiting.done():
                waiting.set_exception(self.error)
                waiting.exception()  # marks the error as seen, because nobody may wait for the message


class Peers:
    """This rank's end of all connections. tell and close may be called from any thread.

    on_message(rank, message) is called on the loop with what other ranks (and this one) tell."""

    def __init__(self, rank: int, host: str, on_message: Callable[[int, Any], None]) -> None:
        self._rank = rank
        self._on_message = on_message
        self._secret = bytes(SECRET_BYTES)
        self._addresses: List[Tuple[str, int]] = []
        self._outgoing: Dict[int, _Outgoing] = {}
        self._tasks: "set[asyncio.Task[Any]]" = set()
        self._loop = asyncio.new_event_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.address: Tuple[str, int] = (host, self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._loop.run_forever, name="rueda-peers", daemon=True)

    def start(self, addresses: List[Tuple[str, int]], secret: bytes) -> None:
        """Begins to listen.

        Args:
            addresses: the addresses of all ranks, by rank.
            secret: the same bytes on all ranks.
        """
        self._addresses = addresses
        self._secret = secret
        self._thread.start()
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._listener, self._accept)

    def close(self) -> None:
        """Ends all connections; whoever waits for a message to go gets CancelledError."""
        async def end() -> None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            # Tasks are cancelled again until there are none: asyncio.wait_for() of Python 3.11 and before swallows a cancellation
            # that comes when what it waits for has just ended.
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in others:
                    task.cancel()
                await asyncio.wait(others, timeout=_CANCEL_AGAIN_S)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join()
        self._loop.close()

    def tell(self, rank: int, message: Any) -> "concurrent.futures.Future[None]":
        """Calls on_message(this rank, message) on another rank. The message is anything that JSON can hold. Messages to one rank
        arrive in order."""
        return asyncio.run_coroutine_threadsafe(self._tell(rank, message), self._loop)

    # Begins a task and keeps it, because the loop itself does not keep its tasks alive.
    def _begin(self, work: "Coroutine[Any, Any, Any]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, rank: int, message: Any) -> None:
        if rank == self._rank:
            self._on_message(rank, message)
            return
        text = json.dumps(message).encode()
        assert len(text) <= _MOST_MESSAGE_BYTES
        try:
            await self._connection_to(rank).write(_HEAD.pack(len(text)) + text)
        except OSError as error:
            raise PeerError(f"rank {rank} cannot be told ({error}): it has ended, or its address "
                            f"{self._addresses[rank]} cannot be reached from here") from None

    def _connection_to(self, rank: int) -> _Outgoing:
        connection = self._outgoing.get(rank)
        if connection is None or connection.error is not None:
            connection = self._outgoing[rank] = _Outgoing(self._loop)
            self._begin(self._serve_outgoing(connection, rank))
        return connection

    async def _serve_outgoing(self, connection: _Outgoing, rank: int) -> None:
        address = self._addresses[rank]
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        sock.setblocking(False)
        error: BaseException = ConnectionError("this process leaves")
        try:
            await asyncio.wait_for(self._loop.sock_connect(sock, address), _CONNECT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_sendall(sock, _HELLO.pack(_MAGIC, self._secret, self._rank))
            await asyncio.gather(self._write_messages(connection, sock), self._await_end(sock))
        except asyncio.TimeoutError:
            error = ConnectionError(f"no answer within {_CONNECT_S:g} s")
        except OSError as found:
            error = found
        finally:
            connection.fail(error)
            sock.close()

    async def _write_messages(self, connection: _Outgoing, sock: socket.socket) -> None:
        while True:
            data, done = await connection.messages.get()
            try:
                await self._loop.sock_sendall(sock, data)
            except OSError as error:
                if not done.done():
                    done.set_exception(error)
                raise
            if not done.done():
                done.set_result(None)

    # Nothing comes back over a connection but its end.
    async def _await_end(self, sock: socket.socket) -> None:
        await _read(self._loop, sock, 1)
        raise ConnectionError("it has sent something")

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the connection has gone again
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        try:
            hello = await asyncio.wait_for(_read(self._loop, sock, _HELLO.size), _HELLO_S)
            magic, secret, rank = _HELLO.unpack(hello)
            if magic != _MAGIC or not hmac.compare_digest(secret, self._secret):
                return
            if not 0 <= rank < len(self._addresses):
                return
            while True:
                (size,) = _HEAD.unpack(await _read(self._loop, sock, _HEAD.size))
                if size > _MOST_MESSAGE_BYTES:
                    return
                self._on_message(rank, json.loads(await _read(self._loop, sock, size)))
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError, ValueError):
            pass
        finally:
            sock.close()
