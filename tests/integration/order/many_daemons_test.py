#!/usr/bin/python3
"""Tests one job on many real daemons of this machine, one rank each.

RUEDA_DAEMONS and RUEDA_STEPS make it longer; tests/long.sh does."""

import os

import harness
from schedules import ScheduleTest

DAEMONS = int(os.environ.get("RUEDA_DAEMONS", "6"))
STEPS = int(os.environ.get("RUEDA_STEPS", "20"))


class ManyDaemonsTest(ScheduleTest):

    def test_a_locked_schedule(self):
        daemons = self.start_daemons(*(f"node{i:02}" for i in range(DAEMONS)), arguments=["--failure-timeout", "30"])
        self.run_locked(daemons, STEPS)


if __name__ == "__main__":
    harness.main()
