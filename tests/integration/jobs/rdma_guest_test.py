#!/usr/bin/python3
"""Tests daemons that reduce over RDMA. It runs in a machine with an RDMA device whose network has the address
RUEDA_TEST_RDMA_ADDRESS, such as tests/rdma/guest.sh makes."""

import json
import os
import re
import resource
import signal
import socket
import time
import unittest

import harness
from harness import IntegrationTest, rank, wait_until

ADDRESS = os.environ.get("RUEDA_TEST_RDMA_ADDRESS", "")
# The time that a daemon waits for a silent neighbour. The machine is emulated, and opening the queue pairs of a job has taken it
# more than four seconds: a test that is about no death waits longer than that.
PATIENT_TIMEOUT_MS = 30000
DEATH_TIMEOUT_MS = 8000
LOST_S = 40


@unittest.skipUnless(ADDRESS, "no RDMA: tests/rdma/run.sh runs this where there is")
class RdmaTest(IntegrationTest):

    def start_node(self, name, *arguments, timeout_ms=PATIENT_TIMEOUT_MS, inside=()):
        return self.start_daemon(name, *arguments, "--failure-timeout", str(timeout_ms / 1000), host=ADDRESS, inside=inside)

    def start_nodes(self, count, *arguments, timeout_ms=PATIENT_TIMEOUT_MS):
        return [self.start_node(f"node{i}", *arguments, timeout_ms=timeout_ms) for i in range(count)]

    def assert_transport(self, daemons, is_rdma):
        """Checks that all channels so far were over RDMA, or all over TCP."""
        for daemon in daemons:
            found = [daemon.metric("rueda_rdma_channels_total") > 0, daemon.metric("rueda_rdma_fallbacks_total") > 0]
            self.assertEqual(found, [is_rdma, not is_rdma], daemon.output())

    def bench(self, daemons):
        """Runs a benchmark that checks every result, on one rank of each node."""
        path = os.path.join(self.folder, "bench.json")
        sizes, dtypes = harness.amount(("0,1e,300K", "float32"), ("0,1e,4K,300K,4M", "float32,bfloat16"))
        job = self.start_job(daemons, [1] * len(daemons), [
            harness.program("rueda-bench"), "allreduce", "--sizes", sizes, "--dtype", dtypes, "--iters", "3", "--json", path])
        # The slowest machine that was seen took 5 s a row.
        self.assertEqual(job.exit_codes(180), [0] * len(daemons), job.output())
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual(len(rows), harness.amount(3, 10))
        self.assertEqual([row["wrong"] for row in rows], [0] * len(rows))

    def output_of_refused(self, *arguments):
        """Returns what a daemon says that does not start with these flags."""
        run = self.start([harness.program("ruedad"), "--private", "--transport", "rdma", "--socket",
                          os.path.join(self.folder, "refused.sock"), *arguments])
        self.assertNotEqual(run.exit_code(), 0)
        return run.output()

    def loop_on(self, daemons):
        job = self.start_job(daemons, [1] * len(daemons), rank("init", "loop:200000"))
        for number in range(len(daemons)):
            job.wait_for(number, "^looping")
        return job

    def assert_node_lost(self, job, numbers):
        since_s = time.monotonic()
        for number in numbers:
            error = job.wait_for(number, r"^error loop:\S+ (\S+) at (\S+): (.*)$", LOST_S)
            self.assertEqual(error.group(1), "RUEDA_ERR_NODE_LOST", error.group(0))
        self.assertLess(time.monotonic() - since_s, LOST_S)


def packets_of(device):
    """Returns how many packets the device has sent."""
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts", encoding="ascii") as file:
        return int(file.read())


class RingTest(RdmaTest):

    def test_four_nodes_reduce_right(self):
        daemons = self.start_nodes(4, "--transport", "rdma")
        self.bench(daemons)
        self.assert_transport(daemons, is_rdma=True)

    # Bytes of inputs were once copied into memory of the transport's before they were sent.
    def test_large_inputs_are_sent_from_where_they_are(self):
        daemons = self.start_nodes(2)
        job = self.start_job(daemons, [1, 1], rank("init", "steps:20:1048576", "shutdown"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.assert_transport(daemons, is_rdma=True)
        for daemon in daemons:
            # Each of two nodes begins the way of one half of 20 tensors of 4 MiB.
            self.assertEqual(daemon.metric("rueda_network_input_bytes_total", 'from="arena"'), 20 * (4 << 20) / 2)
            self.assertEqual(daemon.metric("rueda_network_input_bytes_total", 'from="buffer"'), 0)
            self.assertEqual(daemon.metric("rueda_copied_in_bytes_total"), 0)

    def test_streams_are_spread_over_devices_and_their_queues_polled(self):
        before = [packets_of(device) for device in ("rxe0", "rxe1")]
        daemons = self.start_nodes(2, "--transport", "rdma", "--streams", "2", "--rdma-devices", "rxe1,rxe0", "--rdma-poll-us", "200")
        job = self.start_job(daemons, [1, 1], rank("init", "steps:10:1048576", "shutdown"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.assert_transport(daemons, is_rdma=True)
        # Each device has carried its half of what both nodes have sent, which is twice the tensor in each step.
        for device, count in zip(("rxe0", "rxe1"), before):
            self.assertGreater(packets_of(device) - count, 10 * (4 << 20) / 4096 / 2, device)
        # Whoever has another number of devices is told so.
        alone = self.start_node("alone", "--streams", "2")
        job = self.start_job([daemons[0], alone], [1, 1], rank("init", "steps:1:1000", "shutdown"))
        # A rank that has had its error ends well, so a launcher may, too.
        job.exit_codes()
        self.assertEqual(job.output().count("] error steps:"), 2, job.output())
        self.assertRegex(job.output() + alone.output(), "the peer (has 2|says: the peer has 0) devices in --rdma-devices, "
                                                        "and this daemon [02]")
        self.assertIn("no RDMA device mlx5_9; it has rxe0, rxe1", self.output_of_refused("--rdma-devices", "mlx5_9"))

    def test_every_collective_is_right(self):
        daemons = self.start_nodes(2, "--streams", "2")
        for collective in ("broadcast", "allgather", "reduce_scatter", "alltoall"):
            job = self.start_job(daemons, [2, 1], [
                harness.program("rueda-bench"), collective, "--sizes", "4K,1M", "--iters", "2", "--json",
                os.path.join(self.folder, collective)])
            self.assertEqual(job.exit_codes(), [0, 0], job.output())
            with open(os.path.join(self.folder, collective), encoding="utf-8") as file:
                for line in file:
                    self.assertEqual(json.loads(line)["wrong"], 0, line)
        self.assert_transport(daemons, is_rdma=True)


# What the presets of docs/lineage.md give over RDMA is compared element by element, over collectives that follow from the seed.
class PresetTest(RdmaTest):

    # What the preset `rueda` sets are the defaults, which the other tests have.
    @harness.needs_long_tier
    def test_grpc_verbs(self):
        daemons = self.start_nodes(2, "--transport", "rdma")
        job = self.start_job(daemons, [2, 1], [harness.program("integration_parts_rank"), "3", "10"],
                             extra=("--preset", "grpc-verbs"))
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        # Each line has a prefix, the rank.
        self.assertEqual(len(re.findall(r"^\[\d\] .*\bok ", job.output(), re.MULTILINE)), 3, job.output())
        self.assert_transport(daemons, is_rdma=True)


class DeathTest(RdmaTest):

    def test_a_neighbour_that_is_killed_is_found(self):
        daemons = self.start_nodes(3, timeout_ms=DEATH_TIMEOUT_MS)
        job = self.loop_on(daemons)
        daemons[1].send(signal.SIGKILL)
        self.assert_node_lost(job, (0, 2))
        job.exit_codes()
        daemons.pop(1)
        self.assert_job_runs(daemons, [1, 1])

    # An RDMA device answers for a process that stands still.
    def test_a_neighbour_that_stands_still_is_found(self):
        daemons = self.start_nodes(3, timeout_ms=DEATH_TIMEOUT_MS)
        job = self.loop_on(daemons)
        daemons[1].send(signal.SIGSTOP)
        self.assert_node_lost(job, (0, 2))
        daemons[1].send(signal.SIGCONT)
        job.exit_codes()


class FallbackTest(RdmaTest):

    def setUp(self):
        super().setUp()
        limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_MEMLOCK, limits)

    def doctor(self, daemon):
        run = self.start([harness.program("ruedactl"), "--socket", daemon.socket, "doctor"])
        run.exit_code()
        return run.output()

    # Root may lock any memory, unless it lacks the capability for that.
    def start_poor_node(self, *arguments):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
        return self.start_node("poor", *arguments, inside=["setpriv", "--bounding-set", "-ipc_lock"])

    def test_too_little_locked_memory_is_said_and_done_without(self):
        poor = self.start_poor_node()
        rich = self.start_node("rich")
        daemons = [rich, poor]
        self.assert_job_runs(daemons, [1, 1])
        self.assert_transport(daemons, is_rdma=False)
        self.assertRegex(poor.output(), r"rdma: channel .* cannot be over RDMA: .*cannot register .*LimitMEMLOCK=infinity")
        self.assertRegex(rich.output(), r"rdma: channel .* cannot be over RDMA: the peer says: .*cannot register")
        self.assertIn("over TCP", self.doctor(rich))

    def test_who_insists_on_rdma_is_told_why_not(self):
        insisting = self.start_node("insisting", "--transport", "rdma")
        plain = self.start_node("plain", "--transport", "tcp")
        job = self.start_job([insisting, plain], [1, 1], rank("init", "steps:3:1000", "shutdown"))
        # A rank may have ended, well, before its launcher hears why.
        self.assertNotEqual(job.exit_codes(), [0, 0], job.output())
        self.assertIn("does not speak rdma, which this daemon insists on", job.output() + insisting.output())

    def test_loopback_is_tcp(self):
        daemons = self.start_daemons("alpha", "beta")
        self.assert_job_runs(daemons, [1, 1])
        for daemon in daemons:
            self.assertEqual(daemon.metric("rueda_rdma_channels_total"), 0)
            self.assertEqual(daemon.metric("rueda_rdma_fallbacks_total"), 0)


class StrangerTest(RdmaTest):

    def test_strangers_get_no_queue_pair(self):
        daemons = self.start_nodes(2)
        job = self.loop_on(daemons)
        channels = daemons[0].metric("rueda_rdma_channels_total")
        host, port = daemons[0].addresses["data"].rsplit(":", 1)
        for garbage in (b"", b"\0" * 96, os.urandom(4096)):
            with socket.create_connection((host, int(port)), timeout=10) as stranger:
                stranger.sendall(garbage)
        self.assertTrue(wait_until(lambda: daemons[0].metric("rueda_rejected_connections_total") >= 3, 20))
        self.assertEqual(daemons[0].metric("rueda_rdma_channels_total"), channels)
        self.assertTrue(all(launcher.is_running() for launcher in job.launchers), job.output())
        for launcher in job.launchers:
            launcher.send(signal.SIGTERM)
        job.exit_codes()


if __name__ == "__main__":
    harness.main()
