#!/usr/bin/python3
"""Tests a step of a thousand small tensors from the same memory, again and again, with other values each time: by then nothing is
looked up by name nor checked anew, and every sum is still that of its own step."""

import harness
from schedules import Schedule, ScheduleTest

TENSORS = 200 if harness.SANITIZED else 1000
STEPS = 20


class SmallTensorsTest(ScheduleTest):

    def test_a_step_that_repeats(self):
        daemons = self.start_daemons("a", "b")
        schedule = Schedule(self, daemons, [2, 2], f"{TENSORS}x256", ["--coordination", "locked"])
        schedule.wait_until_locked()
        before = self.order_messages()
        schedule.wait_for_tensors(STEPS * (TENSORS + 1))
        self.assertEqual(self.order_messages() - before, 0, schedule.describe_daemons())
        # Once left, the schedule is found again.
        schedule.deviate("shape", 7)
        schedule.wait_for_deviations()
        schedule.wait_for_tensors(5 * (TENSORS + 1))
        schedule.stop()


if __name__ == "__main__":
    harness.main()
