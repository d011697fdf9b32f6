#!/usr/bin/python3
"""Tests what a launcher leaves behind when it is killed or ends, what signals to all of its processes do, and how it finds
others: real processes, in namespaces where names, process ids or routes must be other ones."""

import os
import shutil
import signal
import subprocess
import unittest
import uuid

import harness
from harness import Job, IntegrationTest, PYTHON, rank, wait_until


def can_add_networks():
    name = f"rueda-{uuid.uuid4().hex[:8]}"
    tool = shutil.which("ip")
    if tool is None or subprocess.run([tool, "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return False
    return subprocess.run([tool, "netns", "del", name], capture_output=True, check=False).returncode == 0


def can_unshare(*flags):
    tool = shutil.which("unshare")
    return tool is not None and subprocess.run([tool, *flags, "true"], capture_output=True, check=False).returncode == 0


needs_mounts = unittest.skipUnless(can_unshare("--mount"), "mount namespaces are not allowed here (run as root)")
needs_pids = unittest.skipUnless(can_unshare("--pid", "--fork", "--mount-proc"),
                                 "PID namespaces are not allowed here (run as root)")

needs_networks = unittest.skipUnless(can_unshare("--mount") and can_add_networks(),
                                     "network namespaces are not allowed here (run as root, with iproute2)")

# The family is what training has: a shell around it, a child in the background, forked workers, and one process that has left for
# a session of its own.
FAMILY = """
setsid sleep 1000 &
sleep 1000 &
python="{python}"
"$python" -c 'import os, time
for _ in range(3):
    if os.fork() == 0:
        time.sleep(1000)
print("up", flush=True)
while True: pass'
echo never
""".format(python=PYTHON)

SAVES = """
import signal, sys
import numpy
import rueda

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
signal.signal(signal.SIGUSR1, lambda *_: print("warned", flush=True))
rueda.init()
print("up", flush=True)
while not rueda.allreduce(numpy.array([len(asked)], numpy.float32), name="asked", op=rueda.Sum)[0]:
    pass
# All have left after the same step: what they still do together works.
rueda.allreduce(numpy.ones(1000, numpy.float32), name="last")
print("saved", flush=True)
rueda.shutdown()
"""

REAPED = """
import os, subprocess, time

for _ in range(30):  # orphans that end
    subprocess.run(["/bin/sh", "-c", "sleep 0.1 & exit"])
def zombies():
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                found += file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            pass
    return found
def orphans():
    return int(subprocess.run(["pgrep", "-cx", "sleep"], capture_output=True, text=True).stdout or 0)
deadline = time.monotonic() + 30
while (orphans() or zombies()) and time.monotonic() < deadline:
    time.sleep(0.05)
print("zombies", zombies(), flush=True)
"""


class LauncherTest(IntegrationTest):

    def start_family(self, *flags):
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", "--grace", "2", *flags, "/bin/sh", "-c", FAMILY)
        run.wait_for(r"\[0\] up")
        run.wait_for(r"\[1\] up")
        # There are two shells with seven processes each, the launcher, its guardian, and two daemons.
        self.assertGreaterEqual(len(self.processes()), 2 * 7 + 4, self.processes())
        return run

    def pid_of(self, name):
        """Returns the pid of a program that comes and goes, or None if it does not run."""
        return next((pid for pid, line in self.processes() if line and line.split()[0].endswith(name)), None)

    def test_nothing_outlives_a_launcher_that_is_killed(self):
        run = self.start_family()
        run.send(signal.SIGKILL)
        self.assertEqual(run.exit_code(), -signal.SIGKILL)
        self.assert_nothing_left()
        self.assertRegex(run.output(), r"the launcher \(pid \d+\) was killed; killed what it left: \d+ processes of its ranks, "
                                       r"0 daemons")

    def test_a_daemon_that_hangs_goes_with_its_launcher(self):
        hanging = os.path.join(self.folder, "hanging")
        with open(hanging, "w", encoding="utf-8") as file:
            file.write(f"#!{PYTHON}\nimport signal\nfor number in (1, 2, 15):\n    signal.signal(number, signal.SIG_IGN)\n"
                       "print('hangs', flush=True)\nwhile True:\n    signal.pause()\n")
        os.chmod(hanging, 0o755)
        run = self.ruedarun("--ruedad", hanging, "--grace", "0.1", "true")
        run.wait_for("hangs")
        run.send(signal.SIGKILL)
        self.assertEqual(run.exit_code(), -signal.SIGKILL)
        self.assert_nothing_left()
        self.assertIn("0 processes of its ranks, 1 daemons", run.output())

    def test_a_guardian_that_is_killed_is_started_again(self):
        run = self.start_family()
        first = self.pid_of("rueda-guardian")
        os.kill(first, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.pid_of("rueda-guardian") not in (None, first)))
        run.send(signal.SIGKILL)
        self.assertEqual(run.exit_code(), -signal.SIGKILL)
        self.assert_nothing_left()

    def test_a_job_that_failed_leaves_nothing_in_other_sessions(self):
        run = self.start_family()
        run.send(signal.SIGTERM)
        self.assertEqual(run.exit_code(), 143, run.output())
        self.assert_nothing_left()
        self.assertRegex(run.output(), "killed 2 processes that ranks had left outside of their groups")

    def test_what_a_rank_leaves_is_asked_to_end_first(self):
        script = "(trap 'echo uploaded; exit' TERM; echo left; while :; do sleep 0.05; done) & setsid sleep 1000 & sleep 0.3"
        run = self.ruedarun("--grace", "60", "/bin/sh", "-c", script)
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertRegex(run.output(), r"the ranks have ended and left \d process(es)? running, \d+ \(.*\): SIGTERM, and")
        self.assertIn("[0] uploaded", run.output())
        # A process with a session of its own is meant to stay.
        (pid, line), = self.processes()
        self.assertIn("sleep 1000", line)
        os.kill(pid, signal.SIGKILL)

    def test_ranks_save_after_a_signal_to_all_processes(self):
        run = self.ruedarun("-np", "2", "--virtual-nodes", "2", "--grace", "60", PYTHON, "-c", SAVES)
        run.wait_for(r"\[0\] up")
        run.wait_for(r"\[1\] up")
        for number in (signal.SIGUSR1, signal.SIGTERM):
            for pid, _ in self.processes():
                os.kill(pid, number)
            if number == signal.SIGUSR1:
                run.wait_for(r"\[0\] warned")
                run.wait_for(r"\[1\] warned")
        self.assertEqual(run.exit_code(), 143, run.output())
        run.wait_for(r"\[0\] saved")
        run.wait_for(r"\[1\] saved")
        self.assertNotIn("was stopped", run.output())

    @needs_pids
    def test_process_1_reaps_orphans(self):
        run = self.start(["unshare", "--pid", "--fork", "--mount-proc", harness.program("ruedarun"), PYTHON, "-c", REAPED])
        self.assertEqual(run.exit_code(), 0, run.output())
        self.assertIn("[0] zombies 0", run.output())

    @needs_pids
    def test_process_1_passes_signals_and_exit_codes_on(self):
        inside = ["unshare", "--pid", "--fork", "--mount-proc", harness.program("ruedarun")]
        self.assertEqual(self.start([*inside, "/bin/sh", "-c", "exit 7"]).exit_code(), 7)
        run = self.start([*inside, "/bin/sh", "-c", "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"])
        run.wait_for(r"\[0\] up")
        first = next(pid for pid, line in self.processes()
                     if "ruedarun" in line and "unshare" not in line and harness.read_text(f"/proc/{pid}/status").split(
                         "NSpid:")[1].split("\n")[0].split()[-1] == "1")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(run.exit_code(), 143, run.output())
        self.assertIn("[0] told", run.output())


class NamesTest(IntegrationTest):

    def inside(self, hosts, before=()):
        """Returns what goes before a command for which /etc/hosts has these lines, and name servers do not answer."""
        files = {}
        for name, text in (("hosts", hosts), ("resolv.conf", "nameserver 192.0.2.1\n")):
            files[name] = os.path.join(self.folder, f"{name}-{uuid.uuid4().hex}")
            with open(files[name], "w", encoding="utf-8") as file:
                file.write(text)
        mounts = " && ".join(f"mount --bind {path} /etc/{name}" for name, path in files.items())
        return [*before, "unshare", "--mount", "/bin/sh", "-c", f'{mounts} && exec "$@"', "sh"]

    @needs_mounts
    def test_names_of_the_hosts_file_though_no_name_server_answers(self):
        """gRPC takes the names of these hosts for schemes of its own, and waits for a server to resolve."""
        inside = self.inside("127.0.0.1 localhost dns unix\n")
        daemons = [self.start_daemon(f"node{i}", "--advertise-host", host, inside=inside) for i, host in enumerate(("dns", "unix"))]
        endpoint = f"unix:{harness.free_port()}"
        job = Job([self.start([*inside, harness.program("ruedarun"), "-np", "1", "--nnodes", "2", "--node-rank", str(i),
                               "--rdzv-endpoint", endpoint, "--start-timeout", "20", "--socket", daemon.socket,
                               *rank("init", "steps:3:1000", "shutdown")]) for i, daemon in enumerate(daemons)])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    @needs_networks
    def test_a_node_whose_own_name_is_a_loopback_address(self):
        """The name has the address that Debian's /etc/hosts gives it, and there is no default route by which to guess."""
        spaces = [f"rueda-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        for space in spaces:
            subprocess.run(["ip", "netns", "add", space], check=True)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", space], check=True)
        links = [f"r{space[-8:]}" for space in spaces]
        subprocess.run(["ip", "link", "add", links[0], "netns", spaces[0], "type", "veth", "peer", "name", links[1],
                        "netns", spaces[1]], check=True)
        for i, (space, link) in enumerate(zip(spaces, links)):
            for command in (["addr", "add", f"10.99.7.{i + 1}/24", "dev", link], ["link", "set", link, "up"],
                            ["link", "set", "lo", "up"]):
                subprocess.run(["ip", "-n", space, *command], check=True)
        for flags in ([], ["--rdzv-secret-file", self.secret_file()]):
            launchers = []
            for i, (space, address) in enumerate(zip(spaces, ("127.0.1.1", "10.99.7.1"))):
                inside = self.inside(f"127.0.0.1 localhost\n{address} first\n", ["ip", "netns", "exec", space])
                launchers.append(self.start([*inside, harness.program("ruedarun"), "-np", "1", "--nnodes", "2", "--node-rank",
                                             str(i), "--rdzv-endpoint", "first:29400", "--start-timeout", "20", *flags,
                                             *rank("init", "steps:3:1000", "shutdown")]))
            job = Job(launchers)
            self.assertEqual(job.exit_codes(), [0, 0], job.output())
            self.assertIn("the others reach this node at 10.99.7.1", launchers[0].output())
            self.assertEqual("gives the job's token to whoever is the first" in launchers[0].output(), not flags)

    def secret_file(self):
        path = os.path.join(self.folder, "secret")
        with open(path, "w", encoding="utf-8") as file:
            file.write(uuid.uuid4().hex + "\n")
        return path

    @needs_networks
    def test_ports_that_have_run_out_are_named(self):
        """The error comes in the daemon's words, because gRPC says nothing useful."""
        script = 'ip link set lo up; echo "30000 $1" >/proc/sys/net/ipv4/ip_local_port_range || exit 9; shift; exec "$@"'
        for last, what in ((30000, "cannot listen on control address 127.0.0.1:0: no free port is left"), (30001, "no port for HTTP is left")):
            run = self.start(["unshare", "--net", "/bin/sh", "-c", script, "sh", str(last), harness.program("ruedarun"), "true"])
            code = run.exit_code()
            if code == 9:
                self.skipTest("the range of ports cannot be set here")
            self.assertEqual(code, 1, run.output())
            self.assertRegex(run.output(), what + ".*ip_local_port_range")
            self.assertNotRegex(run.output(), r"[EI]\d{4} .*\.cc:\d+")

    @unittest.skipUnless(os.path.exists("/proc/net/if_inet6") and harness.read_text("/proc/net/if_inet6"), "no IPv6 here")
    def test_a_daemon_with_an_address_of_ipv6_alone(self):
        """The address has no brackets, as Kubernetes gives a node's address."""
        daemons = [self.start_daemon(node, "--advertise-host", "::1", host="::1") for node in ("alpha", "beta")]
        self.assert_job_runs(daemons, [1, 1])

    def test_a_daemon_that_cannot_be_reached_is_named_with_the_reason(self):
        alpha = self.start_daemon("alpha", "--advertise-host", "127.0.0.9")  # listens at 127.0.0.1
        beta = self.start_daemon("beta")
        job = self.start_job([alpha, beta], [1, 1], rank("init"), extra=("--start-timeout", "2"))
        self.assertNotIn(0, job.exit_codes())
        self.assertRegex(job.output(), r"waiting for word from the coordinator on node alpha; node alpha: its daemon at "
                                       r"127\.0\.0\.9:\d+ cannot be reached: .*Connection refused")
        self.assertRegex(job.output(), r"the others look for node alpha at 127\.0\.0\.9:\d+: can they reach that address")
        beta.wait_for(r"the daemon at 127\.0\.0\.9:\d+ cannot be reached: .*Connection refused.*; trying again")


if __name__ == "__main__":
    harness.main()
