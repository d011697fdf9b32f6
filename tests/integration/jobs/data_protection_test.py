#!/usr/bin/python3
"""Tests --data-protection with somebody between two daemons, who reads what they send each other, and changes it."""

import socket
import subprocess
import threading

import harness
from harness import IntegrationTest, program, rank, wait_until

HEADER = b"RD\x07"  # with which a frame's header begins, in clear
STEPS = rank("init", "steps:20:100000", "shutdown")


class Between:
    """Forwards the ports of a daemon on 127.0.0.1 from 127.0.0.2. What goes to the data port is kept, and one byte of it is changed once
    spoil() has been called."""

    def __init__(self, daemon):
        self.kept = bytearray()
        self._lock = threading.Lock()
        self._spoils = False
        self._sockets = []
        for which in ("control", "data"):
            listener = socket.create_server(("127.0.0.2", daemon.port(which)))
            self._sockets.append(listener)
            threading.Thread(target=self._accept, args=(listener, daemon.port(which), which == "data"), daemon=True).start()

    def spoil(self):
        with self._lock:
            self._spoils = True

    def is_spoilt(self):
        with self._lock:
            return not self._spoils

    def close(self):
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def _accept(self, listener, port, is_data):
        while True:
            try:
                here = listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", port))
            except OSError:
                return
            self._sockets += [here, there]
            threading.Thread(target=self._pump, args=(here, there, is_data), daemon=True).start()
            threading.Thread(target=self._pump, args=(there, here, False), daemon=True).start()

    def _pump(self, source, sink, is_data):
        try:
            while piece := source.recv(1 << 16):
                sink.sendall(self._keep(piece) if is_data else piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _keep(self, piece):
        with self._lock:
            self.kept += piece
            if self._spoils and len(piece) > 4096:
                self._spoils = False
                piece = piece[:2000] + bytes([piece[2000] ^ 1]) + piece[2001:]
            return piece


class DataProtectionTest(IntegrationTest):

    def start_with_someone_between(self, *arguments):
        """Returns two daemons, and who stands before the second one."""
        number = len(self.daemons)
        alpha = self.start_daemon(f"alpha{number}", *arguments)
        beta = self.start_daemon(f"beta{number}", "--advertise-host", "127.0.0.2", *arguments)
        between = Between(beta)
        self.addCleanup(between.close)
        return [alpha, beta], between

    def run_job(self, daemons, command=STEPS, extra=()):
        job = self.start_job(daemons, [1, 1], command, extra)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_who_reads_sees_frames_in_clear_without_protection_and_with_authenticate(self):
        for protection in ("none", "authenticate"):
            with self.subTest(protection):
                daemons, between = self.start_with_someone_between("--data-protection", protection)
                self.run_job(daemons)
                self.assertGreater(between.kept.count(HEADER), 20)
                between.close()

    def test_who_reads_sees_nothing_of_what_is_encrypted(self):
        for transport in ("tcp", "grpc"):
            with self.subTest(transport):
                daemons, between = self.start_with_someone_between("--data-protection", "encrypt", "--transport", transport)
                self.run_job(daemons)
                self.assertGreater(len(between.kept), 20 * 100000 * 4 // 2)
                # Random bytes look like three bytes that are known once in 16 million.
                self.assertLess(between.kept.count(HEADER), 5)
                between.close()

    def test_what_was_changed_on_its_way_ends_the_job_and_is_counted(self):
        for protection in ("authenticate", "encrypt"):
            with self.subTest(protection):
                daemons, between = self.start_with_someone_between("--data-protection", protection)
                job = self.start_job(daemons, [1, 1], rank("init", "loop:100000"))
                job.wait_for(0, "^looping")
                job.wait_for(1, "^looping")
                between.spoil()
                self.assertTrue(wait_until(between.is_spoilt, harness.PATIENCE_S))
                self.assertNotIn(0, job.exit_codes(), job.output())
                daemons[1].wait_for(rf"job \S+: what comes from node {daemons[0].node_id} cannot be used: .*was changed on its way")
                # Whoever asks first, and at either end: a channel that closed is not the reason.
                self.assertRegex(job.output(), rf"what comes from node {daemons[0].node_id} cannot be used: .*was changed on its way")
                self.assertNotRegex(job.output(), "is lost")
                self.assertEqual(daemons[1].metric("rueda_forged_frames_total"), 1)
                self.assertEqual(daemons[0].metric("rueda_forged_frames_total"), 0)
                self.assertTrue(all(daemon.is_running() for daemon in daemons))
                self.run_job(daemons)
                between.close()

    def test_streams_and_process_sets_are_protected_alike(self):
        daemons = self.start_daemons("alpha", "beta", arguments=("--data-protection", "encrypt", "--streams", "3"))
        self.run_job(daemons)
        self.assertEqual([daemon.metric("rueda_forged_frames_total") for daemon in daemons], [0, 0])

    def test_a_node_that_protects_otherwise_is_told_so(self):
        daemons = [self.start_daemon("alpha", "--data-protection", "encrypt"), self.start_daemon("beta")]
        job = self.start_job(daemons, [1, 1], STEPS)
        self.assertNotIn(0, job.exit_codes(), job.output())
        self.assertRegex(job.output(), "--data-protection.*(encrypt.*none|none.*encrypt)")

    def test_a_job_may_say_what_it_wants(self):
        daemon = self.start_daemon("alpha")
        job = self.start_job([daemon], [2], STEPS, ["--data-protection", "encrypt"])
        self.assertNotEqual(job.exit_codes(), [0], job.output())
        self.assertIn("start it with --data-protection encrypt, or the job without it", job.output())
        private = self.ruedarun("-np", "4", "--virtual-nodes", "2", "--data-protection", "encrypt", "--", *STEPS)
        self.assertEqual(private.exit_code(), 0, private.output())

    def test_nccl_between_nodes_is_refused(self):
        daemons = self.start_daemons("alpha", "beta", arguments=("--data-protection", "encrypt"))
        job = self.start_job(daemons, [1, 1], STEPS, ["--inter-node", "nccl"])
        self.assertNotIn(0, job.exit_codes(), job.output())
        self.assertIn("--inter-node nccl, which sends in clear", job.output())

    def test_what_cannot_be_protected_is_refused_at_the_start(self):
        for flags, remedy in ((["--transport", "rdma"], "--transport auto or tcp"), (["--inter-node", "nccl"], "--inter-node rueda")):
            run = subprocess.run([program("ruedad"), "--private", "--data-protection", "encrypt", *flags], capture_output=True, text=True,
                                 env=self.env, timeout=harness.PATIENCE_S, check=False)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(remedy, run.stderr)


if __name__ == "__main__":
    harness.main()
