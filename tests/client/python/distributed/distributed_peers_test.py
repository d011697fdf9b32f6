"""Tests how ranks tell each other of process sets, with several ranks in one process."""

import asyncio
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
from rueda.distributed._peers import PeerError, Peers
from rueda.distributed._sets import Sets

SECRET = bytes(range(32))
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

    def wait_for(self, count):
        deadline = time.monotonic() + PATIENCE_S
        while len(self.told) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def test_who_tells_one_that_has_left_hears_so(self):
        self.peers[1].tell(0, "first").result(PATIENCE_S)  # connects the two
        self.wait_for(1)
        self.peers.pop(0).close()
        with self.assertRaisesRegex(PeerError, "rank 0 cannot be told"):
            for _ in range(100):  # what is written before the end is seen goes nowhere
                self.peers[0].tell(0, "again").result(PATIENCE_S)
                time.sleep(0.05)
        with self.assertRaisesRegex(PeerError, "rank 0 cannot be told"):
            self.peers[1].tell(0, "never there").result(PATIENCE_S)

    def test_messages_come_in_order(self):
        for i in range(50):
            self.peers[0].tell(2, {"number": i})
        self.peers[0].tell(0, "to myself")
        self.wait_for(51)
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
        self.peers[0].tell(1, "is heard").result(PATIENCE_S)
        self.wait_for(1)
        self.assertEqual(self.told, [(1, 0, "is heard")])


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
