#!/usr/bin/python3
"""Tests ruedactl probe: daemons measure how fast bytes go between them, and rings avoid the slowest links."""

import json
import os
import signal
import subprocess

import harness
from harness import IntegrationTest, rank, wait_until
from namespaces import SLOW, NamespacesTest

def ask(daemon, *arguments):
    return subprocess.run([harness.program("ruedactl"), "--socket", daemon.socket, *arguments], capture_output=True,
                          text=True, timeout=harness.PATIENCE_S, check=False)


def ring(daemon):
    """Returns the ring of the daemon's one job, while that runs."""
    jobs = json.loads(ask(daemon, "--json", "jobs").stdout)["jobs"]
    return jobs[0]["ring"] if jobs else None


def go_on(job, ranks):
    """Wakes ranks that pause."""
    for number in range(ranks):
        job.wait_for(number, "^ok steps")
        os.kill(job.pid_of(number), signal.SIGUSR1)


class ProbeTest(IntegrationTest):

    def start_cluster(self, *node_ids, extra=None):
        """Starts daemons that know each other; `extra` has more arguments, by node id."""
        ports = {node_id: harness.free_port() for node_id in node_ids}
        nodes = ",".join(f"{node_id}=127.0.0.1:{port}" for node_id, port in ports.items())
        return [self.start_daemon(node_id, "--control-port", str(port), "--nodes", nodes,
                                  *(extra or {}).get(node_id, ())) for node_id, port in ports.items()]

    def test_a_matrix_of_three_daemons(self):
        daemons = self.start_cluster("node0", "node1", "node2")
        probe = ask(daemons[1], "probe")
        self.assertEqual(probe.returncode, 0, probe.stderr)
        lines = probe.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["Gbit/s", "to", "node0", "to", "node1", "to", "node2"])
        for i, line in enumerate(lines[1:4]):
            words = line.split()
            self.assertEqual(words[:2], ["from", f"node{i}"])
            self.assertEqual(words[2 + i], "-")
            self.assertTrue(all(float(word) > 0 for word in words[2:] if word != "-"), line)
        self.assertRegex(lines[4], r"^slow: node\d to node\d, [0-9.]+ Gbit/s$")
        self.assertRegex(lines[7], r"^ring without racks: node0, node\d, node\d$")
        for daemon in daemons:
            daemon.wait_for("bandwidths between 3 nodes are kept")

        again = ask(daemons[2], "--json", "probe")
        self.assertEqual(again.returncode, 0, again.stderr)
        reply = json.loads(again.stdout)
        self.assertEqual(reply["bandwidths"]["nodes"], ["node0", "node1", "node2"])
        for i, row in enumerate(reply["bandwidths"]["rows"]):
            self.assertEqual([value > 0 for value in row["bytes_per_second"]], [to != i for to in range(3)])
        rates = [link["bytes_per_second"] for link in reply["slowest"]]
        self.assertEqual(rates, sorted(rates))
        self.assertEqual((reply["unreachable"], sorted(reply["ring"])), ([], reply["bandwidths"]["nodes"]))
        for daemon in daemons:
            daemon.wait_for("bandwidths between 3 nodes are kept", count=2)
            self.assertEqual(daemon.metric("rueda_unreachable_pairs"), 0)

        job = self.start_job(daemons, [1] * 3, rank("init", "steps:3:1000", "pause", "shutdown"))
        for daemon in daemons:
            self.assertEqual(wait_until(lambda daemon=daemon: ring(daemon)), reply["ring"])
        go_on(job, 3)
        self.assertEqual(job.exit_codes(), [0] * 3, job.output())

    def test_a_job_is_not_disturbed(self):
        daemons = self.start_cluster("node0", "node1")
        job = self.start_job(daemons[1:], [1], rank("init", "steps:3:1000", "pause", "shutdown"))
        job.wait_for(0, "^ok steps")
        probe = ask(daemons[0], "probe")
        self.assertEqual(probe.returncode, 1)
        self.assertRegex(probe.stderr, "node node1 serves job .*, which a measurement would disturb; wait for it to end")
        self.assertNotIn("are kept", daemons[0].output())
        go_on(job, 1)
        self.assertEqual(job.exit_codes(), [0], job.output())
        self.assertEqual(ask(daemons[0], "probe").returncode, 0)

    def test_a_node_that_does_not_answer_is_named(self):
        daemons = self.start_cluster("node0", "node1", "node2")
        daemons[2].send(signal.SIGTERM)
        daemons[2].exit_code()
        probe = ask(daemons[0], "probe")
        self.assertEqual(probe.returncode, 1)
        self.assertRegex(probe.stderr, r"node node2 does not answer at 127\.0\.0\.1:\d+ .*take it out of --nodes")
        self.assertNotIn("are kept", daemons[0].output() + daemons[1].output())

    # Nobody listens at 127.0.0.9, the address at which node2 says it is reached.
    def test_what_does_not_come_through_is_said_counted_and_avoided(self):
        daemons = self.start_cluster("node0", "node1", "node2", extra={"node2": ["--advertise-host", "127.0.0.9"]})
        probe = ask(daemons[0], "probe")
        self.assertEqual(probe.returncode, 1)
        for node in ("node0", "node1"):
            self.assertIn(f"nothing comes through from node {node} to node node2: ", probe.stdout)
        self.assertNotIn("from node node2", probe.stdout)
        for daemon in daemons:
            daemon.wait_for("nothing came through from node node0 to node node2 nor between 1 other")
            self.assertEqual(daemon.metric("rueda_unreachable_pairs"), 2)

    def test_a_job_with_a_node_that_was_not_measured(self):
        daemons = self.start_cluster("node0", "node1")
        self.assertEqual(ask(daemons[0], "probe").returncode, 0)
        stranger = self.start_daemon("stranger")
        self.assert_job_runs([daemons[0], stranger], [1, 1])
        daemons[0].wait_for("its ring is not ordered by bandwidths: node stranger is not among .*run ruedactl probe again")
        self.assertEqual(daemons[0].metric("rueda_unmeasured_jobs_total"), 1)
        self.assertEqual(stranger.metric("rueda_unmeasured_jobs_total"), 0)
        self.assert_job_runs(daemons, [1, 1])
        self.assertEqual(daemons[0].metric("rueda_unmeasured_jobs_total"), 1)

    def test_without_a_list_of_nodes(self):
        probe = ask(self.start_daemon("alone"), "probe")
        self.assertEqual(probe.returncode, 1)
        self.assertIn("--nodes of node alone has 0; give all daemons the same list", probe.stderr)

    def test_a_probe_that_is_broken_off_ends(self):
        daemons = self.start_cluster("node0", "node1", "node2")
        probe = self.start([harness.program("ruedactl"), "--socket", daemons[0].socket, "probe"])
        daemons[0].wait_for("measures the bandwidths between 3 nodes")
        second = ask(daemons[0], "probe")
        self.assertRegex(second.stderr, "the daemon on node node0 has a probe under way; wait for it")
        probe.send(signal.SIGKILL)
        probe.exit_code()
        daemons[0].wait_for("probe: the probe was broken off")
        self.assertNotIn("are kept", daemons[0].output())
        # The measurement under way ends by itself, and requests that come meanwhile are refused.
        self.assertTrue(wait_until(lambda: ask(daemons[0], "probe").returncode == 0))

    def test_a_daemon_that_stops_meanwhile_stops(self):
        daemons = self.start_cluster("node0", "node1", "node2")
        probe = self.start([harness.program("ruedactl"), "--socket", daemons[0].socket, "probe"])
        daemons[0].wait_for("measures the bandwidths between 3 nodes")
        daemons[0].send(signal.SIGTERM)
        self.assertEqual(daemons[0].exit_code(), 0)
        self.assertEqual(probe.exit_code(), 1)


class SlowLinkTest(NamespacesTest):
    """Runs four nodes, and rings that avoid the slow link between two of them."""

    def probe_and_run(self, daemons, slow):
        """Returns the ring after a probe, which the next job has on all nodes."""
        probe = ask(daemons[0], "--json", "probe")
        self.assertEqual(probe.returncode, 0, probe.stderr)
        reply = json.loads(probe.stdout)
        self.assertEqual({(link["from"], link["to"]) for link in reply["slowest"][:2]}, {slow, slow[::-1]})
        for link in reply["slowest"][:2]:
            self.assertGreater(link["bytes_per_second"], 0.5 * SLOW)
            self.assertLess(link["bytes_per_second"], 1.3 * SLOW)
        self.assertGreater(reply["slowest"][2]["bytes_per_second"], 1.5 * SLOW)
        job = self.start_job(daemons, [1] * 4, rank("init", "steps:3:100000", "pause", "shutdown"))
        for daemon in daemons:
            self.assertEqual(wait_until(lambda daemon=daemon: ring(daemon)), reply["ring"], job.output())
        go_on(job, 4)
        self.assertEqual(job.exit_codes(), [0] * 4, job.output())
        return reply["ring"]

    def test_the_ring_avoids_the_slow_link_and_follows_it_when_measured_again(self):
        nodes = ",".join(f"node{i}=10.77.0.{i + 1}:28400" for i in range(4))
        daemons = [self.start_daemon_of(i, "--nodes", nodes) for i in range(4)]
        self.shape("add", 0, 1)
        self.assertIn(self.probe_and_run(daemons, ("node0", "node1")),
                      (["node0", "node2", "node1", "node3"], ["node0", "node3", "node1", "node2"]))
        self.shape("del", 0, 1)
        self.shape("add", 1, 2)
        self.assertIn(self.probe_and_run(daemons, ("node1", "node2")),
                      (["node0", "node1", "node3", "node2"], ["node0", "node2", "node3", "node1"]))


if __name__ == "__main__":
    harness.main()
