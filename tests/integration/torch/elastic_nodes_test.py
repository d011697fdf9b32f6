#!/usr/bin/python3
"""Tests elastic jobs on several nodes: ranks, daemons and launchers die, nodes come late, and the others go on as the same
processes."""

import os
import signal
import subprocess
import unittest

import harness
from elastic_support import HAS_TORCH, LONG, PATIENCE_S, ElasticCase
from harness import wait_until


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed (deploy/packages.sh test installs it)")
class ElasticNodesTest(ElasticCase):

    def daemon_of(self, node):
        found = [pid for pid, line in self.processes() if "ruedad" in line and f"--node-id node{node} " in line]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def start_node(self, node, endpoint, steps, *more, nnodes="1:3"):
        return self.train(["-np", "1", "--nnodes", nnodes, "--node-rank", str(node), "--rdzv-endpoint", endpoint, "--min-np", "1", *more],
                          steps)

    def assert_in_step(self, run, slot, step):
        self.wait_while_it_runs(run, lambda: f"[{slot}] step {step} " in run.output())

    def assert_size(self, run, slot, size):
        self.wait_while_it_runs(run, lambda: self.sizes_of(run, slot)[-1:] == [size])

    def test_a_rank_of_one_node_dies_and_everybody_else_stays(self):
        run = self.train(["-np", "4", "--virtual-nodes", "2", "--min-np", "2"], LONG)
        self.kill_in_step(run, 3, 21)
        self.assert_size(run, 0, 3)
        self.assert_size(run, 0, 4)
        self.end()
        self.assert_trained(run, (0, 1, 2, 3))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in range(4)], [1, 1, 1, 2], run.output())
        self.assertEqual(self.sizes_of(run, 0), [4, 3, 4], run.output())

    # The coordinator's daemon, too: of two nodes, the other could not go on alone.
    def test_a_daemon_is_killed_and_no_process_ends(self):
        for node in (0, 1):
            with self.subTest(node=node):
                for name in os.listdir(self.folder):
                    if name.startswith("born") or name == "stop":
                        os.remove(os.path.join(self.folder, name))
                run = self.train(["-np", "3", "--virtual-nodes", "2", "--min-np", "1"], LONG)
                self.assert_in_step(run, 2, 21)
                os.kill(self.daemon_of(node), signal.SIGKILL)
                self.wait_while_it_runs(run, lambda node=node: f"node node{node} has a daemon again" in run.output())
                seen = len(self.lines_of(run, 0))
                self.wait_while_it_runs(run, lambda: any(" of 3 " in line for line in self.lines_of(run, 0)[seen:]))
                self.end()
                self.assert_trained(run, (0, 1, 2))
                self.assertEqual([len(self.pids_of(run, slot)) for slot in range(3)], [1, 1, 1], run.output())
                self.assertIn(f"node node{node} has a daemon again", run.output())
                self.assertEqual(self.sizes_of(run, 0)[-1], 3, run.output())

    def test_a_daemon_that_stands_still_is_done_without(self):
        run = self.train(["-np", "3", "--virtual-nodes", "3", "--min-np", "1", "--failure-timeout=1"], LONG)
        self.assert_in_step(run, 2, 21)
        frozen = self.daemon_of(2)
        os.kill(frozen, signal.SIGSTOP)
        self.assert_size(run, 0, 2)
        os.kill(frozen, signal.SIGCONT)
        self.assert_size(run, 0, 3)
        self.end()
        self.assert_trained(run, (0, 1, 2))
        self.assertEqual([len(self.pids_of(run, slot)) for slot in range(3)], [1, 1, 1], run.output())

    def test_a_daemon_that_never_serves_again_ends_the_job_with_a_line(self):
        wrapper = os.path.join(self.folder, "ruedad")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nif [ -e {self.folder}/begun ]; then exec sleep 1000; fi\ntouch {self.folder}/begun\n'
                       f'exec {harness.program("ruedad")} "$@"\n')
        os.chmod(wrapper, 0o755)
        run = self.train(["-np", "2", "--min-np", "1", "--ruedad", wrapper, "--start-timeout", "2", "--elastic-timeout", "5",
                          "--max-restarts", "100"], LONG)
        self.assert_in_step(run, 1, 11)
        os.kill(self.daemon_of(0), signal.SIGKILL)
        self.assertEqual(run.exit_code(PATIENCE_S), 1, run.output())
        self.assertIn("node node0 has no daemon again within --elastic-timeout: it has not taken the job within 2 s (--start-timeout); "
                      "ending the job", run.output())

    # Of several launchers: the daemon has a certificate of the job's, and so has the one that follows it.
    def test_a_daemon_with_a_certificate_is_killed_and_no_process_ends(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        runs = [self.start_node(node, endpoint, LONG) for node in range(2)]
        for slot, run in enumerate(runs):
            self.assert_size(run, slot, 2)
        os.kill(self.daemon_of(1), signal.SIGKILL)
        self.wait_while_it_runs(runs[1], lambda: "node node1 has a daemon again" in runs[1].output())
        seen = len(self.lines_of(runs[0], 0))
        self.wait_while_it_runs(runs[0], lambda: any(" of 2 " in line for line in self.lines_of(runs[0], 0)[seen:]))
        command = harness.read_text(f"/proc/{self.daemon_of(1)}/cmdline").split("\0")
        status = subprocess.run([harness.program("ruedactl"), "--socket", command[command.index("--socket") + 1], "status"],
                                env=self.env, capture_output=True, text=True, timeout=harness.PATIENCE_S, check=True).stdout
        self.assertRegex(status, "spiffe://job-[0-9a-f]+/rueda/node/node1")
        self.end()
        for slot, run in enumerate(runs):
            self.assert_trained(run, (slot,))
            self.assertEqual(len(self.pids_of(run, slot)), 1, run.output())

    def test_a_late_node_with_other_settings_is_refused_and_hurts_nobody(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        first = self.start_node(0, endpoint, LONG)
        second = self.start_node(1, endpoint, LONG)
        self.assert_size(first, 0, 2)
        for flags, text in ((["--failure-timeout", "2"], "ruedad --failure-timeout 5000 ms on node node"),
                            (["--algorithm", "ring"], "--algorithm auto on node node"),
                            (["--max-np", "2"], "--max-np 3 on node node")):
            wrong = self.start_node(2, endpoint, LONG, *flags)
            self.assertEqual(wrong.exit_code(PATIENCE_S), 1, wrong.output())
            self.assertIn(text, wrong.output())
            self.assertIn("on node node2; give it the same value on all nodes", wrong.output())
        self.end()
        for slot, run in ((0, first), (1, second)):
            self.assertEqual(run.exit_code(PATIENCE_S), 0, run.output())
            self.assertEqual(self.sizes_of(run, slot)[-1], 2, run.output())
            self.assertNotIn("Error", run.output())

    def test_nodes_come_late_and_come_again(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        first = self.start_node(0, endpoint, LONG)
        second = self.start_node(1, endpoint, LONG)
        self.assert_size(first, 0, 2)
        self.assert_size(second, 1, 2)
        third = self.start_node(2, endpoint, LONG)
        self.assert_size(first, 0, 3)
        # All of a node goes: its launcher, its daemon, its rank.
        second.send(signal.SIGKILL)
        self.assert_size(first, 0, 2)
        second.exit_code()
        again = self.start_node(1, endpoint, LONG)
        self.assert_size(first, 0, 3)
        # Its number is taken now.
        other = self.start_node(1, endpoint, LONG)
        self.assertTrue(wait_until(lambda: "is still there: end it first" in first.output(), PATIENCE_S), first.output())
        other.send(signal.SIGINT)
        other.exit_code()
        self.end()
        for run, slot in ((first, 0), (again, 1), (third, 2)):
            self.assert_trained(run, (slot,))
        self.assertEqual(len({line for run, slot in ((first, 0), (again, 1), (third, 2)) for line in self.lines_of(run, slot)
                              if line.startswith("weights ")}), 1)

    def test_node_0_and_its_launcher_are_as_mortal_as_the_others(self):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        runs = [self.start_node(node, endpoint, LONG, nnodes="3") for node in range(3)]
        self.assert_in_step(runs[0], 0, 21)
        runs[0].send(signal.SIGKILL)
        self.assert_size(runs[1], 1, 2)
        self.end()
        for slot in (1, 2):
            self.assert_trained(runs[slot], (slot,))
            self.assertEqual(self.sizes_of(runs[slot], slot), [3, 2])
        runs[0].exit_code()

    def come_back_as_node_0(self, nnodes):
        endpoint = f"127.0.0.1:{harness.free_port()}"
        secret = os.path.join(self.folder, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("s" * 32)

        def start(node):
            return self.start_node(node, endpoint, LONG, "--rdzv-secret-file", secret, nnodes=nnodes)

        runs = [start(node) for node in range(3)]
        self.assert_size(runs[1], 1, 3)
        for node, other in ((0, 1), (2, 0)):  # Node 2 finds the rendezvous that the new node 0 serves.
            runs[node].send(signal.SIGKILL)
            self.assert_size(runs[1], 1, 2)
            runs[node].exit_code()
            runs[node] = start(node)
            self.assert_size(runs[1], 1, 3)
            self.assert_size(runs[other], other, 3)
        self.assertRegex(runs[0].output(), "takes up job-[0-9a-f]+, which runs on other nodes")
        self.end()
        for slot, run in enumerate(runs):
            self.assert_trained(run, (slot,))

    def test_the_same_command_brings_node_0_back(self):
        self.come_back_as_node_0("3")

    # It would be enough for a job of its own.
    def test_a_new_node_0_takes_up_the_job_that_runs_before_it_begins_another(self):
        self.come_back_as_node_0("1:3")


if __name__ == "__main__":
    harness.main()
