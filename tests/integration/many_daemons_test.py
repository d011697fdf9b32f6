#!/usr/bin/python3
"""One job on many real daemons of this machine, one rank each.

RUEDA_DAEMONS and RUEDA_STEPS make it longer; tests/long.sh does.
"""

import os
import time

import harness
from schedules import Schedule, ScheduleTest

DAEMONS = int(os.environ.get("RUEDA_DAEMONS", "6"))
STEPS = int(os.environ.get("RUEDA_STEPS", "20"))
TENSORS = 161
MOST_RESIDENT_BYTES = 60 << 20


class ManyDaemonsTest(ScheduleTest):

    def test_a_locked_schedule(self):
        daemons = self.start_daemons(*(f"node{i:02}" for i in range(DAEMONS)), arguments=["--timeout-ms", "30000"])
        schedule = Schedule(self, daemons, [1] * DAEMONS, f"{TENSORS}x256", ["--coordination", "locked"])
        schedule.wait_until_locked()
        before = self.order_messages()
        began_s = time.monotonic()
        schedule.wait_for_tensors(STEPS * (TENSORS + 1))
        took_s = time.monotonic() - began_s
        messages = self.order_messages() - before
        resident = [daemon.resident_bytes() for daemon in daemons]
        print(f"{DAEMONS} daemons, {STEPS} steps of {TENSORS} tensors: {took_s:.1f} s, {messages:.0f} messages of order, "
              f"{min(resident) / 2**20:.0f} to {max(resident) / 2**20:.0f} MB resident a daemon", flush=True)
        self.assertEqual(messages, 0, schedule.describe_daemons())
        self.assertLess(max(resident), MOST_RESIDENT_BYTES)
        schedule.stop()


if __name__ == "__main__":
    harness.main()
