#!/usr/bin/python3
"""Tests that idle daemons and idle clients use no CPU: under 0.1 % over 10 s, for each process; where a mere wake-up costs more than
on a quiet machine, as many times more.

The scheduler's clock (schedstat) counts nanoseconds and is held to that. The clock of /proc/PID/stat counts ticks of 10 ms, and
one tick is 0.1 % of 10 s: it may show one. Wake-ups are counted too: how often a process wakes is its own doing, whatever else
the machine is busy with."""

import os
import re
import signal
import time

import harness
from harness import IntegrationTest, by_rank, rank, read_text, wait_until

WINDOW_S = 10.0
MOST = 0.001
# Other work on the machine, and on the one that it is emulated on, makes the few wake-ups dearer (cold caches, what it takes to
# wake a virtual processor), so one quiet window is enough. A process that polls shows in all windows.
WINDOWS = 3
# What a wake-up of a process takes that does nothing else: 57 to 67 us where one of a daemon took 70 to 90. Where it takes longer, a
# daemon may, too, as many times: for minutes, and with nothing to be seen on this machine, a daemon's took 500.
WAKE_UP_S = 80e-6
SLEEPER = [harness.PYTHON, "-S", "-E", "-c", "import time\nwhile True: time.sleep(0.14)"]
# gRPC's timer threads take, even when nothing is due, one wake-up a second for each of its timer lists, of which there are two
# for each core, 32 at most; the others are heartbeats. See docs/performance.md.
MOST_WAKE_UPS_PER_S = 6 + min(2 * (os.cpu_count() or 1), 32)


def used(pid):
    """Returns (seconds by the clock's ticks, seconds by the scheduler, wake-ups) over all threads."""
    fields = read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    run_ns = wake_ups = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        run_ns += int((read_text(f"/proc/{pid}/task/{thread}/schedstat") or "0").split()[0])
        waited = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", read_text(f"/proc/{pid}/task/{thread}/status"),
                           re.MULTILINE)
        wake_ups += int(waited.group(1)) if waited else 0
    return ticks, run_ns / 1e9, wake_ups


class IdleTest(IntegrationTest):

    def assert_idle(self, daemons, clients=None):
        """Fails when one of {name: pid} used more than it may in every window."""
        sleeper = self.start(SLEEPER)
        try:
            self.assert_idle_beside(sleeper, daemons, {**daemons, **(clients or {})})
        finally:
            sleeper.close()

    def assert_idle_beside(self, sleeper, daemons, processes):
        for _ in range(WINDOWS):
            before = {name: used(pid) for name, pid in processes.items()}
            sleeper_before = used(sleeper.pid)
            began_s = time.monotonic()
            time.sleep(WINDOW_S)
            passed_s = time.monotonic() - began_s
            _, slept_run_s, sleeps = (now - then for now, then in zip(used(sleeper.pid), sleeper_before))
            wake_up_s = slept_run_s / max(sleeps, 1)
            print(f"a wake-up of a process that only sleeps: {wake_up_s * 1e6:.0f} us", flush=True)
            most_s = MOST * passed_s * max(1, wake_up_s / WAKE_UP_S)
            too_busy = []
            for name, pid in processes.items():
                ticks_s, run_s, wake_ups = (now - then for now, then in zip(used(pid), before[name]))
                said = (f"{name}: {ticks_s / passed_s:.3%} by ticks, {run_s / passed_s:.3%} by the scheduler, "
                        f"{wake_ups / passed_s:.1f} wake-ups a second")
                print(said, flush=True)
                if (run_s >= most_s or ticks_s > max(1 / os.sysconf("SC_CLK_TCK"), most_s)
                        or wake_ups > (MOST_WAKE_UPS_PER_S * passed_s if name in daemons else 0)):
                    too_busy.append(said)
            if not too_busy:
                return
        self.fail(f"not idle in {WINDOWS} windows of {WINDOW_S} s: {too_busy}")

    def assert_job_is_idle(self, *flags, command=None, depths=(0, 0)):
        daemons = self.start_daemons("alpha", "beta")
        command = command or rank("init", "steps:20:100000", "pause", "steps:3:1000", "shutdown")
        job = self.start_job(daemons, [2, 2], command, flags)
        for number in range(4):
            job.wait_for(number, "^pausing")
        self.assertTrue(wait_until(lambda: tuple(one.metric("rueda_queue_depth") for one in daemons) == depths))
        # A daemon that has something in flight looks now and then for what is missing.
        self.assert_idle({f"daemon {one.node_id}": one.pid for one in daemons if not any(depths)},
                         {f"rank {number}": job.pid_of(number) for number in range(4)})
        for number in range(4):
            os.kill(job.pid_of(number), signal.SIGUSR1)
        self.assertEqual(job.exit_codes(), [0, 0], job.output())

    def test_with_a_job_that_asks_for_nothing(self):
        self.assert_job_is_idle()

    def test_with_an_elastic_job_that_asks_for_nothing(self):
        self.assert_job_is_idle("--min-np", "1")

    def test_with_threads_that_call_back(self):
        """Those of three ranks sleep for the end of an operation, and that of the last one because there is none."""
        self.assert_job_is_idle(
            command=by_rank({3: rank("init", "then:2:20:1000", "pause", "told:late:5", "shutdown")},
                            rank("init", "then:2:20:1000", "told:late:5", "pause", "shutdown")),
            depths=(2, 1))

    def test_without_a_job(self):
        daemons = self.start_daemons("alpha", "beta")
        self.assert_job_runs(daemons, [1, 1])
        self.assertTrue(wait_until(lambda: all(one.metric("rueda_jobs") == 0 for one in daemons)))
        self.assert_idle({f"daemon {one.node_id}": one.pid for one in daemons})


if __name__ == "__main__":
    harness.main()
