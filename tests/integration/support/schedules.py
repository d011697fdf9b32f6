"""Runs jobs of integration_schedule_rank (schedule_rank.cc): ranks that keep to a schedule, or leave it when they are told to."""

import errno
import json
import os
import time

import harness
from harness import IntegrationTest, wait_until

# Tests of many daemons have this in common: the tensors of a ResNet-50, a little of each, and how large a daemon may be.
MANY_TENSORS = 161
MOST_RESIDENT_BYTES = 60 << 20


class Schedule:
    """A job that trains by a schedule on daemons that run."""

    def __init__(self, test, daemons, ranks_per_node, tensors, extra=()):
        self.test = test
        self.daemons = daemons
        self.deviations = 0
        path = os.path.join(test.folder, f"commands{len(test.programs)}")
        os.mkfifo(path)
        others = daemons[0].jobs()
        self.job = test.start_job(daemons, ranks_per_node,
                                  [harness.program("integration_schedule_rank"), tensors, path], extra)
        for number in range(sum(ranks_per_node)):
            self.job.wait_for(number, "^started$")
        [self.job_id] = daemons[0].jobs() - others
        self.label = f'job="{self.job_id}"'
        # Rank 0 has it open.
        self._commands = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        test.addCleanup(os.close, self._commands)

    def _write(self, line):
        try:
            os.write(self._commands, line.encode() + b"\n")
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            self.test.fail(f"rank 0 has gone:\n{self.job.output()}")

    def keep(self, steps):
        """Makes the ranks keep to the schedule in the next steps."""
        self._write(f"calm {steps}")

    def deviate(self, kind, seed):
        self._write(f"{kind} {seed}")
        self.deviations += 1

    def wait_for_deviations(self):
        """Waits until every deviation that was ordered is over."""
        def over():
            return sum(line.startswith("deviated ") for line in self.job.lines_of(0)) == self.deviations

        def ended():
            return not all(launcher.is_running() for launcher in self.job.launchers)

        wait_until(lambda: over() or ended())
        if not over():
            self.test.fail(f"a deviation did not end:\n{self.job.output()}\n{self.describe_daemons()}")

    def plan(self):
        """Returns the batches of the plan in force, as the last node shows them, or nothing if there is none."""
        run = self.test.start([harness.program("ruedactl"), "--socket", self.daemons[-1].socket, "--json",
                               "jobs", "--plan"])
        self.test.assertEqual(run.exit_code(), 0, run.output())
        plans = json.loads(run.output()).get("plans", [])
        return next((plan["batches"] for plan in plans
                     if plan["job_id"] == self.job_id and plan["process_set"] == 0), [])

    def plan_branches(self):
        """Returns whether the plan has alternatives."""
        followed = [batch.get("after", 0) for batch in self.plan()]
        return followed != list(range(len(followed)))

    def is_locked(self):
        return all(daemon.metric("rueda_locked", self.label) == 1 for daemon in self.daemons)

    def wait_until_locked(self):
        if not wait_until(self.is_locked):
            self.test.fail(f"the schedule is not locked:\n{self.job.output()}\n{self.describe_daemons()}")

    def tensors_done(self):
        """Returns the number of tensors that were done on the first node since the job began."""
        return self.daemons[0].metric("rueda_tensors_total", self.label)

    def wait_for_tensors(self, count):
        """Waits until that many more are done."""
        done = self.tensors_done()
        goal = done + count
        while done < goal:
            if not wait_until(lambda before=done: self.tensors_done() > before):
                self.test.fail(f"the job stands still:\n{self.job.output()}\n{self.describe_daemons()}")
            done = self.tensors_done()

    def stop(self):
        """Stops the job, and checks that the ranks found no wrong sum and no error."""
        self._write("stop 0")
        self.test.assertEqual(self.job.exit_codes(), [0] * len(self.daemons), self.job.output())

    def describe_daemons(self):
        return "\n".join(f"daemon {daemon.node_id}:\n{daemon.output()}" for daemon in self.daemons)


class ScheduleTest(IntegrationTest):

    def order_messages(self):
        """Returns the number of messages about order between all daemons, since they began."""
        return sum(daemon.metric("rueda_control_messages_total", 'kind="order"', 'direction="sent"')
                   for daemon in self.daemons)

    def run_locked(self, daemons, steps):
        """Runs one rank a daemon, and checks that every sum is right, no message about order is sent, and memory is bounded."""
        schedule = Schedule(self, daemons, [1] * len(daemons), f"{MANY_TENSORS}x256", ["--coordination", "locked"])
        schedule.wait_until_locked()
        before = self.order_messages()
        began_s = time.monotonic()
        schedule.wait_for_tensors(steps * (MANY_TENSORS + 1))
        took_s = time.monotonic() - began_s
        messages = self.order_messages() - before
        resident = [daemon.resident_bytes() for daemon in daemons]
        print(f"{len(daemons)} daemons, {steps} steps of {MANY_TENSORS} tensors: {took_s:.1f} s, {messages:.0f} messages "
              f"of order, {min(resident) / 2**20:.0f} to {max(resident) / 2**20:.0f} MB resident a daemon", flush=True)
        self.assertEqual(messages, 0, schedule.describe_daemons())
        self.assertLess(max(resident), MOST_RESIDENT_BYTES)
        schedule.stop()
