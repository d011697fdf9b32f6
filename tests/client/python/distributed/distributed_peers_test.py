"""Tests the messages between ranks that send() and recv() of rueda.distributed use, with several ranks in one process."""

import asyncio
import concurrent.futures
import os
import random
import socket
import sys
import threading
import time
import unittest
from unittest import mock

try:
    import torch  # noqa: F401
except ImportError:
    print("PyTorch is not installed: nothing is tested")
    sys.exit(0)

from rueda._core._errors import RuedaError
from rueda.distributed._peers import Channel, PeerError, Peers
from rueda.distributed._sets import Sets

SECRET = bytes(range(32))
CHANNEL = Channel(0, 0, 0)
PATIENCE_S = 20


class PeersTest(unittest.TestCase):

    def setUp(self):
        self.told = []
        self.peers = [Peers(rank, "127.0.0.1", lambda source, message, rank=rank:
                            self.told.append((rank, source, message))) for rank in range(3)]
        addresses = [one.address for one in self.peers]
        for one in self.peers:
            one.start(addresses, SECRET)
        self.addCleanup(lambda: [one.close() for one in self.peers])

    def send(self, source, target, data, channel=CHANNEL):
        return self.peers[source].send(channel, target, memoryview(data))

    def recv(self, rank, data, sources=None, channel=CHANNEL):
        return self.peers[rank].recv(channel, sources, memoryview(data))

    def test_whoever_comes_first_waits(self):
        for receiver_first in (True, False):
            room = bytearray(5)
            if receiver_first:
                taken = self.recv(1, room, [0])
                sent = self.send(0, 1, b"hello")
            else:
                sent = self.send(0, 1, b"hello")
                time.sleep(0.05)
                taken = self.recv(1, room, [0])
            self.assertEqual(taken.result(PATIENCE_S), 0)
            self.assertEqual(sent.result(PATIENCE_S), 1)
            self.assertEqual(bytes(room), b"hello")

    def test_in_random_orders(self):
        """Messages of one channel from one rank come in order; messages of other channels come in any order."""
        chosen = random.Random(3)
        for _ in range(20):
            sends = [(source, Channel(0, chosen.randrange(2), tag), os.urandom(chosen.choice((0, 1, 9, 70_000))))
                     for source in (0, 2) for tag in range(3) for _ in range(4)]
            recvs = [(source, channel, data, bytearray(len(data))) for source, channel, data in sends]
            actions = [(send, self.send) for send in sends] + [(recv, self.recv) for recv in recvs]
            waiting = {}
            for action, kind in actions:
                waiting.setdefault((kind.__name__, action[0], action[1]), []).append(action)
            under_way = []
            while waiting:
                key = chosen.choice(sorted(waiting))
                action = waiting[key].pop(0)
                if not waiting[key]:
                    del waiting[key]
                if key[0] == "send":
                    under_way.append(self.send(action[0], 1, action[2], action[1]))
                else:
                    under_way.append(self.recv(1, action[3], [action[0]], action[1]))
            concurrent.futures.wait(under_way, PATIENCE_S)
            for _, _, data, room in recvs:
                self.assertEqual(bytes(room), data)

    def test_from_any_rank(self):
        rooms = [bytearray(1), bytearray(1)]
        taken = [self.recv(1, room) for room in rooms]
        for source in (0, 2):
            self.send(source, 1, bytes([source])).result(PATIENCE_S)
        self.assertEqual({(one.result(PATIENCE_S), room[0]) for one, room in zip(taken, rooms)}, {(0, 0), (2, 2)})

    def test_another_size_is_an_error_on_both_sides_and_the_connection_stays(self):
        taken, sent = self.recv(1, bytearray(3), [0]), self.send(0, 1, b"1234")
        for one in (taken, sent):
            with self.assertRaisesRegex(PeerError, "rank 0 sends 4 bytes to rank 1, which has room for 3"):
                one.result(PATIENCE_S)
        room = bytearray(2)
        taken = self.recv(1, room, [0])
        self.send(0, 1, b"ok").result(PATIENCE_S)
        taken.result(PATIENCE_S)
        self.assertEqual(bytes(room), b"ok")

    def test_who_waits_for_one_that_leaves_is_told(self):
        self.recv(1, bytearray(1), [0])
        self.send(0, 1, b"x").result(PATIENCE_S)  # connects the two
        taken = self.recv(1, bytearray(1), [0])
        sent = self.send(1, 0, b"y")
        self.peers.pop(0).close()
        with self.assertRaisesRegex(PeerError, "rank 0 has ended its connection to rank 1"):
            taken.result(PATIENCE_S)
        with self.assertRaisesRegex(PeerError, "rank 0 cannot be sent to"):
            sent.result(PATIENCE_S)
        with self.assertRaisesRegex(PeerError, "rank 0 cannot be sent to"):
            self.peers[0].send(CHANNEL, 0, memoryview(b"z")).result(PATIENCE_S)

    def test_who_waits_for_one_that_never_connected_and_has_gone_is_told(self):
        """The rank goes before the recv(), or after it."""
        self.peers[2].close()
        for _ in range(2):
            with self.assertRaisesRegex(PeerError, "rank 2 has ended its connection to rank 0"):
                self.recv(0, bytearray(5), [2]).result(PATIENCE_S)
        waiting = self.recv(0, bytearray(5), [1])
        self.assertEqual(self.send(0, 1, b"there").done(), False)  # the connection is there, and works
        self.recv(1, bytearray(5), [0]).result(PATIENCE_S)
        self.peers[1].close()
        with self.assertRaisesRegex(PeerError, "rank 1 has ended its connection to rank 0"):
            waiting.result(PATIENCE_S)
        self.peers = self.peers[:1]

    def test_a_recv_that_is_given_up_takes_nothing(self):
        first, second = bytearray(1), bytearray(1)
        self.recv(1, first, [0]).cancel()
        time.sleep(0.1)
        taken = self.recv(1, second, [0])
        self.send(0, 1, b"a").result(PATIENCE_S)
        taken.result(PATIENCE_S)
        self.assertEqual((bytes(first), bytes(second)), (b"\0", b"a"))

    def test_messages_come_in_order(self):
        for i in range(50):
            self.peers[0].tell(2, {"number": i})
        self.peers[0].tell(0, "to myself")
        deadline = time.monotonic() + PATIENCE_S
        while len(self.told) < 51 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual([message["number"] for rank, source, message in self.told if rank == 2], list(range(50)))
        self.assertIn((0, 0, "to myself"), self.told)

    def test_closing_ends_although_a_task_has_missed_that_it_is_cancelled(self):
        """asyncio.wait_for() of Python 3.11 does so when what it waits for is just done; closing then hung."""
        begun = threading.Event()

        async def misses_it():
            begun.set()
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass
            await asyncio.sleep(1000)

        peers = self.peers.pop(0)
        asyncio.run_coroutine_threadsafe(misses_it(), peers._loop)
        begun.wait(PATIENCE_S)
        closing = threading.Thread(target=peers.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_S)
        self.assertFalse(closing.is_alive())

    def test_strangers_are_not_listened_to(self):
        hello = b"rueda-p1" + SECRET + (2).to_bytes(4, "big")
        chosen = random.Random(1)
        for attempt in range(60):
            given = bytearray(hello + os.urandom(chosen.randrange(200)))
            if attempt % 3 == 0:
                given[chosen.randrange(len(hello))] ^= 1 << chosen.randrange(8)
            with socket.create_connection(self.peers[1].address, PATIENCE_S) as stranger:
                stranger.sendall(given[:chosen.randrange(len(given) + 1)])
        self.assertEqual(self.told, [])
        self.test_whoever_comes_first_waits()


class SetsTest(unittest.TestCase):

    def test_a_process_ends_although_others_take_no_part_in_a_change(self):
        never = threading.Event()
        begun = threading.Event()

        def add(ranks):
            begun.set()
            never.wait()
            raise RuedaError(-1, f"ranks {ranks} are no set")

        with mock.patch("rueda.distributed._sets._process_sets.add_process_set", add):
            sets = Sets(1, 2, lambda rank, message: None)
            self.addCleanup(never.set)
            sets.on_message(0, {"do": "add", "ranks": [1]})
            begun.wait()
            sets.close()
        self.assertFalse(never.is_set())


if __name__ == "__main__":
    unittest.main()
