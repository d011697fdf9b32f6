#!/usr/bin/python3
"""Tests what a user may have a launcher say that would hurt others: plans of unlike tensors, plans that cost much to check, more jobs
than a quota. Each is refused with a sentence, or costs little; the log names the user, a counter has it, and a job beside it does not
notice. docs/attacks.md has the other attacks."""

import json
import os
import re
import unittest

import harness
from harness import IntegrationTest, program, rank, read_text

NOBODY = 65534
MOST_GROWTH = 100 << 20
REFUSED = "rueda_refused_requests_total"


def tensor(name, **fields):
    return {"name": name, "shape": [8192], "root": -1, "prescale": 1, "postscale": 1, "dtype": 5, **fields}


def batch(*tensors, after=0, ends=True):
    return {"tensors": list(tensors), "after": after, "ends": ends}


# The first tensor is of 64-bit integers. What is said of it counts for all of a batch, unless somebody looks.
UNLIKE = {"dtype": {"dtype": 7}, "kind": {"kind": 7}, "memory": {"memory": 1}, "op": {"op": 3}, "scale": {"prescale": 2},
          "wire dtype": {"dtype": 0, "wire_dtype": 1}}


class Attacks(IntegrationTest):

    def begin_neighbour(self):
        """Starts a job that goes on until the end of the test, and checks all its sums."""
        self.neighbour = self.start_job(self.daemons[:1], [2], rank("init", "loop:10000"))
        self.neighbour.wait_for(0, "^looping")

    def end_neighbour(self):
        self.assertEqual([line for line in self.neighbour.output().split("\n") if "error" in line], [])
        self.assertTrue(all(launcher.is_running() for launcher in self.neighbour.launchers), self.neighbour.output())
        for launcher in self.neighbour.launchers:
            launcher.send(2)
        self.neighbour.exit_codes()

    def replay(self, daemon, *batches):
        """Has a launcher register a job that replays this plan, and returns (exit code, output)."""
        path = os.path.join(self.folder, "plan")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"batches": batches}, file)
        job = self.ruedarun("-np", "1", "--socket", daemon.socket, f"--plan={path}", "true")
        return job.exit_code(), job.output()


class MixedBatchTest(Attacks):

    def test_unlike_tensors_of_a_plan_are_refused(self):
        [daemon] = self.start_daemons("alpha")
        self.begin_neighbour()
        self.assertEqual(self.replay(daemon, batch(tensor("a"), tensor("b")))[0], 0, "alike tensors may share a batch")
        for number, (what, fields) in enumerate(UNLIKE.items()):
            with self.subTest(what=what):
                code, output = self.replay(daemon, batch(tensor("a"), tensor(f"b{number}", **fields)))
                self.assertEqual(code, 1, output)
                self.assertRegex(output, rf'what is to be replayed is .*tensor "b{number}"|impossible .* for tensor b{number}')
                daemon.wait_for(rf"unix socket: refused user {os.getuid()}: job \S+: what is to be replayed is .*b{number}")
        self.assertEqual(daemon.metric(REFUSED, 'at="socket"'), len(UNLIKE))
        self.end_neighbour()

    def test_a_root_in_a_plan_is_refused(self):
        [daemon] = self.start_daemons("alpha")
        for root in (0, 7, -1, 1 << 30):
            code, output = self.replay(daemon, batch(tensor("a", kind=1, root=root)))
            self.assertEqual(code, 1, output)
            self.assertIn('tensor "a" among what may be in a plan', output)
        self.assertEqual(daemon.metric(REFUSED, 'at="socket"'), 4)
        self.assert_job_runs([daemon], [2])


class Cgroup:
    """A group of processes that have so much memory together, by either version of the kernel's interface."""

    def __init__(self, name, limit):
        unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self.folder = os.path.join("/sys/fs/cgroup" if unified else "/sys/fs/cgroup/memory", name)
        os.mkdir(self.folder)
        with open(self._file("memory.max" if unified else "memory.limit_in_bytes"), "w", encoding="ascii") as file:
            file.write(str(limit))
        # The peak is in neither version's reach everywhere: memory.peak came with Linux 5.19.
        self._usage = self._file("memory.current" if unified else "memory.usage_in_bytes")

    def _file(self, name):
        return os.path.join(self.folder, name)

    def usage(self):
        return int(read_text(self._usage))

    def inside(self):
        """Returns what goes before a command line, for the command to run in the group."""
        return ["sh", "-c", f'echo $$ >{self._file("cgroup.procs")}; exec "$@"', "sh"]

    def remove(self):
        harness.wait_until(lambda: not read_text(self._file("cgroup.procs")))
        os.rmdir(self.folder)


class MemoryTest(Attacks):

    # Arenas were once paid for by the daemon, if a client shared holes: the kernel then ended it.
    def test_a_daemon_of_512_mib_serves_arenas_of_a_gigabyte_and_is_shared_no_holes(self):
        try:
            group = Cgroup(f"rueda-test-{os.getpid()}", 512 << 20)
        except OSError as error:
            self.skipTest(f"no group of processes with a limit of memory can be made: {error}")
        self.addCleanup(group.remove)
        daemon = self.start_daemon("alpha", inside=group.inside())
        self.addCleanup(daemon.close)
        before = group.usage()
        # The tensor of each of two ranks has half a gigabyte.
        job = self.start_job([daemon], [2], rank("init", "steps:2:134217728", "shutdown"))
        self.assertEqual(job.exit_codes(), [0], job.output())
        hostile = self.start_job([daemon], [1], [harness.PYTHON, os.path.join(harness.RANKS, "raw_rank.py"), "holes"])
        self.assertRegex(hostile.wait_for(0, "refused .*").group(0), "fallocate or touch all of it before handing it over")
        hostile.exit_codes()
        self.assertLess(group.usage() - before, 128 << 20)
        self.assert_job_runs([daemon], [2])


class PlanBombTest(Attacks):

    def most_bytes(self, daemon):
        return int(re.search(r"VmHWM:\s+(\d+) kB", read_text(f"/proc/{daemon.pid}/status")).group(1)) << 10

    def test_a_plan_that_costs_much_to_check_costs_little(self):
        [daemon] = self.start_daemons("alpha")
        self.begin_neighbour()
        before = self.most_bytes(daemon)

        def small(number):
            return {"name": f"t{number}", "shape": [1], "root": -1, "prescale": 1, "postscale": 1}

        # A long chain with as many ways to end as a plan may have.
        chain = [batch(small(number), after=min(number, 20_000), ends=number >= 20_000) for number in range(20_064)]
        self.assertEqual(self.replay(daemon, *chain)[0], 0)
        # Each batch begins a round, and ends one: once as many numbers as there are pairs of them.
        code, output = self.replay(daemon, *[batch(small(number)) for number in range(40_000)])
        self.assertEqual(code, 1, output)
        self.assertIn("40000 batches begin a round and 40000 end one; the limit is 64", output)
        daemon.wait_for(rf"unix socket: refused user {os.getuid()}: job \S+: what is to be replayed is a plan in which 40000 ")
        self.assertEqual(daemon.metric(REFUSED, 'at="socket"'), 1)
        self.assertLess(self.most_bytes(daemon) - before, MOST_GROWTH)
        self.end_neighbour()


class DialTest(Attacks):

    def start_cluster(self):
        ports = [harness.free_port() for _ in range(3)]
        # The third one is not in the list of the first two.
        nodes = ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip(("alpha", "beta"), ports))
        return [self.start_daemon(name, "--control-port", str(port), "--nodes", nodes, "--dial", "nodes")
                for name, port in zip(("alpha", "beta", "gamma"), ports)]

    def test_jobs_have_nodes_of_the_list_alone_and_others_are_not_dialled(self):
        alpha, beta, gamma = self.start_cluster()
        self.assert_job_runs([alpha, beta], [1, 1])
        job = self.start_job([alpha, gamma], [1, 1], rank("init", "shutdown"), extra=("--start-timeout", "20"))
        self.assertNotIn(0, job.exit_codes(), job.output())
        self.assertRegex(job.output(), "node gamma is not in the daemon's --nodes, and with --dial nodes it knows no other: add it there")
        alpha.wait_for(rf"unix socket: refused user {os.getuid()}: node gamma is not in the daemon's --nodes")
        self.assertEqual(alpha.metric(REFUSED, 'at="socket"'), 1)
        self.assert_job_runs([alpha, beta], [1, 1])


@unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
class QuotaTest(Attacks):

    def test_a_user_who_has_all_his_jobs_leaves_others_theirs(self):
        [daemon] = self.start_daemons("alpha", arguments=["--quota-jobs", "2"])
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        held = [self.start([program("ruedarun"), "-np", "1", "--socket", daemon.socket, "sleep", "1000"], **nobody) for _ in range(2)]
        self.assertTrue(harness.wait_until(lambda: daemon.metric("rueda_jobs") == 2))
        more = self.start([program("ruedarun"), "-np", "1", "--socket", daemon.socket, "true"], **nobody)
        self.assertEqual(more.exit_code(), 1, more.output())
        self.assertIn("--quota-jobs", more.output())
        daemon.wait_for(rf"unix socket: refused user {NOBODY}: .*--quota-jobs")
        self.assertEqual(daemon.metric(REFUSED, 'at="socket"'), 1)
        self.assert_job_runs([daemon], [2])
        for one in held:
            one.send(15)
            one.exit_code()


if __name__ == "__main__":
    harness.main()
