"""Sends messages between the ranks of a job, one to one: what send() and recv() carry, and who asks for which process sets.

A thread of its own runs an asyncio loop. Each rank listens; a rank that sends to another one connects to it, and keeps that
connection. The sender first says what it has (kOffer); the receiver answers when somebody waits for it (kTake), and only then the
bytes come, straight from the one tensor into the other: nothing is copied or queued in between, however much a sender is ahead.
Connections begin with a secret that the ranks got from each other through the daemons."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hmac
import json
import socket
import struct
import threading
from collections import Counter, deque
from typing import Any, Callable, Coroutine, Deque, Dict, List, NamedTuple, Optional, Tuple

SECRET_BYTES = 32
_HELLO = struct.Struct("!8s32si")  # kMagic, the secret, the sender's rank
_MAGIC = b"rueda-p1"
_FRAME = struct.Struct("!BIIqQQ")  # kind, group, its ordinal, tag, the offer's number, bytes
_OFFER, _TAKE, _REFUSE, _DATA, _MESSAGE = range(1, 6)
_MOST_MESSAGE_BYTES = 1 << 20
_CANCEL_AGAIN_S = 0.1
_CONNECT_S = 30.0
_HELLO_S = 10.0
_BACKLOG = 1024


class Channel(NamedTuple):
    """Says what a message belongs to.

    Attributes:
        group: the process set.
        ordinal: which of PyTorch's groups over that process set.
    """

    group: int
    ordinal: int
    tag: int


class PeerError(RuntimeError):
    """A transfer between two ranks failed."""


class _Wanted:
    """A recv() that waits."""

    def __init__(self, sources: Optional[List[int]], memory: memoryview) -> None:
        self.sources = sources  # None: any rank
        self.memory = memory
        self.done: "asyncio.Future[int]" = asyncio.get_running_loop().create_future()


class _Offered:
    """A send() whose offer has come here."""

    def __init__(self, connection: "_Incoming", number: int, size: int) -> None:
        self.connection = connection
        self.number = number
        self.size = size


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


class _Incoming:
    """A connection that another rank has opened, on which that rank sends and this rank answers."""

    def __init__(self, rank: int, sock: socket.socket) -> None:
        self.rank = rank
        self.sock = sock
        self.taken: Dict[int, _Wanted] = {}  # by the numbers of their offers: the bytes are on their way
        self.answering = asyncio.Lock()


class _Writing(NamedTuple):
    """A frame that is to be written, when its turn comes."""

    head: bytes
    memory: Optional[memoryview]
    done: "asyncio.Future[None]"


class _Outgoing:
    """A connection that this rank opens. Frames are written in the order in which they were asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.frames: "asyncio.Queue[_Writing]" = asyncio.Queue()
        self.offers: Dict[int, "asyncio.Future[int]"] = {}  # number -> the receiver's bytes, when it answers
        self.numbers = 0
        self.error: Optional[BaseException] = None

    def write(self, head: bytes, memory: Optional[memoryview] = None) -> "asyncio.Future[None]":
        done: "asyncio.Future[None]" = self._loop.create_future()
        if self.error is not None:
            done.set_exception(self.error)
        else:
            self.frames.put_nowait(_Writing(head, memory, done))
        return done

    def fail(self, error: BaseException) -> None:
        """Ends the connection with an error: nothing more goes, nor comes."""
        self.error = self.error or error
        waiting: "List[asyncio.Future[Any]]" = list(self.offers.values())
        while not self.frames.empty():
            waiting.append(self.frames.get_nowait().done)
        for one in waiting:
            if not one.done():
                one.set_exception(self.error)
                one.exception()  # marks the error as seen, because whoever waits for the one may not wait for the other


class Peers:
    """This rank's end of all connections. send, recv, tell and close may be called from any thread.

    on_message(rank, message) is called on the loop with what other ranks (and this one) tell."""

    def __init__(self, rank: int, host: str, on_message: Callable[[int, Any], None]) -> None:
        self._rank = rank
        self._on_message = on_message
        self._secret = bytes(SECRET_BYTES)
        self._addresses: List[Tuple[str, int]] = []
        self._outgoing: Dict[int, _Outgoing] = {}
        self._incoming: "Counter[int]" = Counter()  # connections that are up, by the rank at the other end
        self._wanted: Dict[Channel, Deque[_Wanted]] = {}
        self._offered: Dict[Channel, Deque[Tuple[int, _Offered]]] = {}
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
        """Ends all transfers; whoever waits for one gets CancelledError."""
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

    def send(self, channel: Channel, rank: int, memory: memoryview) -> "concurrent.futures.Future[int]":
        """Sends `memory`, which must live and not change until the result is there. The result is `rank`, and comes when the
        bytes have gone into the connection to that rank."""
        return asyncio.run_coroutine_threadsafe(self._send(channel, rank, memory), self._loop)

    def recv(self, channel: Channel, ranks: Optional[List[int]],
             memory: memoryview) -> "concurrent.futures.Future[int]":
        """Receives into `memory`. The result is the rank that sent what is in `memory` then. `ranks` has the ranks that may send
        it."""
        return asyncio.run_coroutine_threadsafe(self._recv(channel, ranks, memory), self._loop)

    def tell(self, rank: int, message: Any) -> "concurrent.futures.Future[None]":
        """Calls on_message(this rank, message) on another rank. The message is anything that JSON can hold. Messages to one rank
        arrive in order."""
        return asyncio.run_coroutine_threadsafe(self._tell(rank, message), self._loop)

    # Begins a task and keeps it, because the loop itself does not keep its tasks alive.
    def _begin(self, work: "Coroutine[Any, Any, Any]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Sending -------------------------------------------------------------------------------------------------

    async def _send(self, channel: Channel, rank: int, memory: memoryview) -> int:
        try:
            connection = self._connection_to(rank)
            connection.numbers += 1
            number = connection.numbers
            answer: "asyncio.Future[int]" = self._loop.create_future()
            connection.offers[number] = answer
            try:
                await connection.write(_FRAME.pack(_OFFER, *channel, number, memory.nbytes))
                size = await answer
            finally:
                connection.offers.pop(number, None)
            if size != memory.nbytes:
                raise PeerError(f"rank {self._rank} sends {memory.nbytes} bytes to rank {rank}, which has room for "
                                f"{size}: their tensors must have the same dtype and as many elements")
            await connection.write(_FRAME.pack(_DATA, *channel, number, memory.nbytes), memory)
            return rank
        except OSError as error:
            raise PeerError(f"rank {rank} cannot be sent to ({error}): it has ended, or its address "
                            f"{self._addresses[rank]} cannot be reached from here") from None

    async def _tell(self, rank: int, message: Any) -> None:
        if rank == self._rank:
            self._on_message(rank, message)
            return
        text = json.dumps(message).encode()
        assert len(text) <= _MOST_MESSAGE_BYTES
        try:
            await self._connection_to(rank).write(_FRAME.pack(_MESSAGE, 0, 0, 0, 0, len(text)), memoryview(text))
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
            await asyncio.gather(self._write_frames(connection, sock), self._read_answers(connection, sock))
        except asyncio.TimeoutError:
            error = ConnectionError(f"no answer within {_CONNECT_S:g} s")
        except OSError as found:
            error = found
        finally:
            connection.fail(error)
            sock.close()
            if not self._incoming[rank]:
                self._miss(rank)

    async def _write_frames(self, connection: _Outgoing, sock: socket.socket) -> None:
        while True:
            head, memory, done = await connection.frames.get()
            try:
                await self._loop.sock_sendall(sock, head)
                if memory is not None and memory.nbytes:
                    await self._loop.sock_sendall(sock, memory)
            except OSError as error:
                if not done.done():
                    done.set_exception(error)
                raise
            if not done.done():
                done.set_result(None)

    async def _read_answers(self, connection: _Outgoing, sock: socket.socket) -> None:
        while True:
            kind, _, _, _, number, size = _FRAME.unpack(await _read(self._loop, sock, _FRAME.size))
            answer = connection.offers.get(number)
            if kind in (_TAKE, _REFUSE) and answer is not None and not answer.done():
                answer.set_result(size)

    # --- Receiving -----------------------------------------------------------------------------------------------

    async def _recv(self, channel: Channel, ranks: Optional[List[int]], memory: memoryview) -> int:
        wanted = _Wanted(ranks, memory)
        offers = self._offered.get(channel, deque())
        for place, (rank, offered) in enumerate(offers):
            if ranks is None or rank in ranks:
                del offers[place]
                if not offers:
                    del self._offered[channel]
                self._take(channel, offered, wanted)
                break
        else:
            self._wanted.setdefault(channel, deque()).append(wanted)
            # The end of a rank that has not connected yet would not be noticed; a connection to that rank ends when it dies.
            if ranks is not None and len(ranks) == 1 and ranks[0] != self._rank and not self._incoming[ranks[0]]:
                self._connection_to(ranks[0])
        try:
            return await wanted.done
        finally:
            waiting = self._wanted.get(channel)
            if waiting and wanted in waiting:  # the wait was cancelled
                waiting.remove(wanted)

    def _take(self, channel: Channel, offered: _Offered, wanted: _Wanted) -> None:
        connection = offered.connection
        fits = offered.size == wanted.memory.nbytes
        if fits:
            connection.taken[offered.number] = wanted
        else:
            wanted.done.set_exception(PeerError(
                f"rank {connection.rank} sends {offered.size} bytes to rank {self._rank}, which has room for "
                f"{wanted.memory.nbytes}: their tensors must have the same dtype and as many elements"))
        frame = _FRAME.pack(_TAKE if fits else _REFUSE, *channel, offered.number, wanted.memory.nbytes)
        self._begin(self._answer(connection, frame))

    async def _answer(self, connection: _Incoming, frame: bytes) -> None:
        async with connection.answering:
            try:
                await self._loop.sock_sendall(connection.sock, frame)
            except OSError:
                pass  # the thread that reads the connection sees the error, and tells all

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # the connection has gone again
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._begin(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        connection: Optional[_Incoming] = None
        try:
            hello = await asyncio.wait_for(_read(self._loop, sock, _HELLO.size), _HELLO_S)
            magic, secret, rank = _HELLO.unpack(hello)
            if magic != _MAGIC or not hmac.compare_digest(secret, self._secret):
                return
            if not 0 <= rank < len(self._addresses):
                return
            connection = _Incoming(rank, sock)
            self._incoming[rank] += 1
            while True:
                await self._serve_frame(connection)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError, ValueError):
            pass
        finally:
            sock.close()
            if connection is not None:
                self._lose(connection)

    async def _serve_frame(self, connection: _Incoming) -> None:
        sock = connection.sock
        kind, group, ordinal, tag, number, size = _FRAME.unpack(await _read(self._loop, sock, _FRAME.size))
        channel = Channel(group, ordinal, tag)
        if kind == _OFFER:
            self._offer(channel, connection, number, size)
        elif kind == _DATA and number in connection.taken:
            wanted = connection.taken[number]
            if size != wanted.memory.nbytes:
                raise ValueError("not what was offered")
            await _read_into(self._loop, sock, wanted.memory)
            del connection.taken[number]
            if not wanted.done.done():
                wanted.done.set_result(connection.rank)
        elif kind == _MESSAGE and size <= _MOST_MESSAGE_BYTES:
            self._on_message(connection.rank, json.loads(await _read(self._loop, sock, size)))
        else:
            raise ValueError("not a frame")

    def _offer(self, channel: Channel, connection: _Incoming, number: int, size: int) -> None:
        offered = _Offered(connection, number, size)
        waiting = self._wanted.get(channel, deque())
        for place, wanted in enumerate(waiting):
            if wanted.sources is None or connection.rank in wanted.sources:
                del waiting[place]
                if not waiting:
                    del self._wanted[channel]
                self._take(channel, offered, wanted)
                return
        self._offered.setdefault(channel, deque()).append((connection.rank, offered))

    # Returns the error of everything that this rank awaits from a rank that has gone.
    def _miss(self, rank: int) -> PeerError:
        lost = PeerError(f"rank {rank} has ended its connection to rank {self._rank}: it has left or died")
        for waiting in list(self._wanted.values()):
            for wanted in list(waiting):
                if wanted.sources == [rank] and not wanted.done.done():
                    wanted.done.set_exception(lost)
        return lost

    def _lose(self, connection: _Incoming) -> None:
        self._incoming[connection.rank] -= 1
        lost = self._miss(connection.rank)
        for wanted in connection.taken.values():
            if not wanted.done.done():
                wanted.done.set_exception(lost)
        for channel, offers in list(self._offered.items()):
            kept = deque(pair for pair in offers if pair[1].connection is not connection)
            if kept:
                self._offered[channel] = kept
            else:
                del self._offered[channel]
