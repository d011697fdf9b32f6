#!/usr/bin/python3
"""Tests ranks that mpirun or srun has started, against daemons that run: they find each other, register the job, and say what is
missing."""

import json
import os
import shutil
import signal
import unittest

import harness
from harness import IntegrationTest, program, rank, wait_until

needs_mpirun = unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed (deploy/packages.sh bench)")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
FOREIGN = ("OMPI_", "PMIX_", "PMI_", "MPI_", "SLURM_")
STEPS = ("init", "steps:5:1000", "shutdown")


def slurm(number, size, nodes=2, hosts="localhost,other", **more):
    """Returns what srun tells a task."""
    return {"SLURM_PROCID": str(number), "SLURM_NTASKS": str(size), "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_STEP_ID": "3", "SLURM_NNODES": str(nodes), "SLURM_STEP_NODELIST": hosts, **more}


class LaunchTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.env = {name: value for name, value in self.env.items() if not name.startswith(FOREIGN)}
        self.env["XDG_RUNTIME_DIR"] = self.folder

    def start_tasks(self, variables, daemons, command):
        """Starts processes as srun would; task i uses daemons[i]."""
        return [self.start(command, extra_env={**one, "RUEDA_SOCKET": daemon.socket})
                for one, daemon in zip(variables, daemons)]

    def assert_all_well(self, tasks):
        self.assertEqual([task.exit_code() for task in tasks], [0] * len(tasks), "\n".join(t.output() for t in tasks))

    def test_a_proxy_in_the_environment_is_nobodys(self):
        """gRPC once looked for the proxy on the way to the job's own daemon."""
        proxy = "http://127.0.0.1:9"
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            self.env[name] = proxy
        for nodes in ("1", "2"):
            run = self.ruedarun("-np", "2", "--virtual-nodes", nodes, *rank(*STEPS))
            self.assertEqual(run.exit_code(), 0, run.output())
        daemon, = self.start_daemons("alpha")
        job = self.start_job([daemon], [2], rank(*STEPS))
        self.assertEqual(job.exit_codes(), [0], job.output())
        status = self.start([program("ruedactl"), "--socket", daemon.socket, "status"])
        self.assertEqual(status.exit_code(), 0, status.output())

    def test_a_program_that_nobody_started_is_a_job_of_one_rank(self):
        """It is so with MPI: scripts are tried that way, and notebooks run so. Where no daemon serves, the program has one of its
        own."""
        alpha, = self.start_daemons("alpha")
        for variables in ({}, {"RUEDA_SOCKET": alpha.socket}, slurm(0, 1, nodes=1, hosts="localhost")):
            with self.subTest(variables):
                task = self.start(rank(*STEPS), extra_env=variables)
                self.assertEqual(task.exit_code(), 0, task.output())
                said = [line for line in task.output().splitlines() if not line.startswith(("ok ", "pid "))]
                self.assertEqual(len(said), 0 if "SLURM_PROCID" in variables else 1, task.output())
                self.assertTrue(all("so it is a job of one; for more of them: ruedarun -np 4" in line for line in said), said)
        again = self.start(rank("init", "steps:5:1000", "shutdown", "init", "steps:5:1000", "exit:5"))
        self.assertEqual(again.exit_code(), 5, again.output())
        self.assertIn("ok steps:5:1000", again.output())

    @needs_mpirun
    def test_mpirun_on_one_node(self):
        alpha, = self.start_daemons("alpha")
        run = self.start([*MPIRUN, "-np", "3", "-x", f"RUEDA_SOCKET={alpha.socket}", *rank(*STEPS)])
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertEqual(wait_until(lambda: not alpha.jobs() and "gone"), "gone")

    @needs_mpirun
    def test_mpirun_on_two_nodes(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        command = [program("rueda_example_allreduce")]
        run = self.start([*MPIRUN, "-np", "2", "-x", f"RUEDA_SOCKET={alpha.socket}", *command,
                          ":", "-np", "2", "-x", f"RUEDA_SOCKET={beta.socket}", *command])
        self.assertEqual(run.exit_code(), 0, run.output())
        for number, node in ((0, "alpha"), (1, "alpha"), (2, "beta"), (3, "beta")):
            self.assertIn(f"rank {number} of 4 on node {node}: average of 4 ranks is 1.5", run.output())

    @needs_mpirun
    def test_a_timeline_under_mpirun(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        path = os.path.join(self.folder, "timeline.json")
        command = ["-x", f"RUEDA_TIMELINE={path}", *rank(*STEPS)]
        run = self.start([*MPIRUN, "-np", "2", "-x", f"RUEDA_SOCKET={alpha.socket}", *command,
                          ":", "-np", "2", "-x", f"RUEDA_SOCKET={beta.socket}", *command])
        self.assertEqual(run.exit_code(), 0, run.output())

        def whole():
            try:
                with open(path, encoding="utf-8") as file:
                    return json.load(file)
            except (OSError, json.JSONDecodeError):
                return None
        timeline = wait_until(whole)
        self.assertIsNotNone(timeline, run.output())
        self.assertEqual([node["node_id"] for node in timeline["rueda"]["nodes"]], ["alpha", "beta"])
        for process in (1, 2):
            names = [event["name"] for event in timeline["traceEvents"] if event["pid"] == process]
            self.assertEqual(names.count("ALLREDUCE"), 5)
        ready = {event["name"] for event in timeline["traceEvents"] if event["name"].startswith("ready ")}
        self.assertEqual(ready, {f"ready {number}" for number in range(4)})

    def test_srun_deals_ranks_out_in_turn(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        tasks = self.start_tasks([slurm(i, 4) for i in range(4)], [alpha, beta, alpha, beta],
                                 [program("rueda_example_allreduce")])
        self.assert_all_well(tasks)
        for i, task in enumerate(tasks):
            self.assertIn(f"rank {i} of 4 on node {('alpha', 'beta')[i % 2]}", task.output())

    def test_a_place_that_is_named_and_pmi(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        place = f"127.0.0.1:{harness.free_port()}"
        tasks = self.start_tasks([{"PMI_RANK": str(i), "PMI_SIZE": "2", "RUEDA_RDZV_ENDPOINT": place}
                                  for i in range(2)], [alpha, beta], rank(*STEPS))
        self.assert_all_well(tasks)

    def test_leaving_and_joining_again(self):
        alpha, = self.start_daemons("alpha")
        tasks = self.start_tasks([slurm(i, 2, nodes=1) for i in range(2)], [alpha] * 2,
                                 rank(*STEPS, *STEPS, *STEPS))
        self.assert_all_well(tasks)

    def test_who_leaves_early_takes_nobodys_job(self):
        """The registration lasts until the last rank of a node has ended."""
        alpha, = self.start_daemons("alpha")
        leaving = ["/bin/sh", "-c", '[ "$SLURM_PROCID" = 0 ] && exec "$@"; exec "$@" pause', "sh", *rank(*STEPS)]
        first, second = self.start_tasks([slurm(i, 2, nodes=1) for i in range(2)], [alpha] * 2, leaving)
        second.wait_for("pausing")
        self.assertEqual(first.exit_code(), 0, first.output())
        self.assertTrue(wait_until(lambda: len([1 for _, line in self.processes() if "--for-rank" in line]) == 1))
        self.assertEqual(len(alpha.jobs()), 1)
        second.send(signal.SIGKILL)
        second.exit_code()
        self.assertEqual(wait_until(lambda: not alpha.jobs() and "gone"), "gone")

    def test_a_death_is_told_by_name(self):
        alpha, beta = self.start_daemons("alpha", "beta")
        tasks = self.start_tasks([slurm(i, 2) for i in range(2)], [alpha, beta], rank("init", "steps:1000000:10"))
        self.assertTrue(wait_until(lambda: alpha.metric("rueda_operations_total") > 5))
        tasks[1].send(signal.SIGKILL)
        self.assertNotEqual(tasks[0].exit_code(), 0)
        self.assertRegex(tasks[0].output(), "rank 1 ")

    def test_what_is_missing_is_said(self):
        alpha, = self.start_daemons("alpha")
        command = rank("init")
        cases = [
            (slurm(0, 2), "/nowhere.sock", r"no daemon answers at /nowhere.sock.*start one with"),
            (slurm(0, 2, nodes=1, RUEDA_START_TIMEOUT_MS="2000"), alpha.socket,
             r"ranks 1 of 2 did not come to unix:.*within 2000 ms"),
            (slurm(1, 2, nodes=1, RUEDA_START_TIMEOUT_MS="2000"), alpha.socket, "did rank 0 call init"),
            ({"PMI_RANK": "0", "PMI_SIZE": "2"}, alpha.socket, "set RUEDA_RDZV_ENDPOINT to HOST:PORT"),
            ({"PMI_RANK": "0", "PMI_SIZE": "2", "RUEDA_RDZV_ENDPOINT": "here"}, alpha.socket,
             'RUEDA_RDZV_ENDPOINT="here" is not HOST:PORT'),
            ({"PMI_RANK": "5", "PMI_SIZE": "2"}, alpha.socket, 'PMI_RANK="5" is not a number from 0 to 1'),
            ({"OMPI_COMM_WORLD_RANK": "0"}, alpha.socket, 'OMPI_COMM_WORLD_SIZE="" is not a number'),
            (slurm(0, 1, RUEDA_RUEDARUN="/no/ruedarun"), alpha.socket, "set RUEDA_RUEDARUN to its path"),
            ({"WORLD_SIZE": "1"}, alpha.socket, "RUEDA_JOB_ID is not set; start the program with ruedarun"),
            ({}, "/nowhere.sock", r"no daemon answers at /nowhere.sock.*start one with"),
        ]
        for variables, socket, expected in cases:
            with self.subTest(expected):
                task = self.start(command, extra_env={**variables, "RUEDA_SOCKET": socket})
                self.assertNotEqual(task.exit_code(), 0)
                self.assertRegex(task.output(), expected)
        os.chmod(os.path.join(self.folder, f"rueda-{os.geteuid()}"), 0o777)
        task = self.start(command, extra_env={**slurm(0, 2, nodes=1), "RUEDA_SOCKET": alpha.socket})
        self.assertNotEqual(task.exit_code(), 0)
        self.assertRegex(task.output(), "must be this user's and nobody else's")
        shutil.rmtree(os.path.join(self.folder, f"rueda-{os.geteuid()}"))


if __name__ == "__main__":
    harness.main()
