#!/usr/bin/python3
"""Tests which of several large tensors under way is done first: the one submitted last, as the next forward pass needs it first;
or what the client says."""

import re

import harness
from harness import IntegrationTest, rank

ROUNDS = 5
FLOATS = 4 << 20  # 16 MiB


class PrioritiesTest(IntegrationTest):

    def orders(self, priorities):
        """Returns in which order the tensors a, b, c and d, submitted in this order, were done in each round: lists of those that
        were seen done at one look."""
        job = self.start_job(self.daemons, [1, 1],
                             rank("init", f"race:{FLOATS}:{priorities}:{ROUNDS}", "shutdown"),
                             ["--fusion-threshold", "0"])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        orders = re.findall(r"order ([a-d|]+)", job.output())
        self.assertEqual(len(orders), 2 * ROUNDS, job.output())
        return [order.strip("|").split("|") for order in orders]

    def assert_mostly(self, first, last, orders):
        # Now and then the machine takes so long over a round that what began first is done first.
        def place(tensor, order):
            return next(i for i, seen in enumerate(order) if tensor in seen)

        right = [order for order in orders if place(first, order) < place(last, order)]
        wrong = [order for order in orders if place(first, order) > place(last, order)]
        self.assertGreater(len(right), len(wrong), orders)

    def test_what_was_submitted_last_is_done_first(self):
        self.start_daemons("alpha", "beta")
        self.assert_mostly("d", "a", self.orders("0,0,0,0"))

    def test_unless_the_client_says_otherwise(self):
        self.start_daemons("alpha", "beta")
        self.assert_mostly("a", "d", self.orders("3,2,1,0"))
        self.assert_mostly("b", "d", self.orders("0,9,0,0"))


if __name__ == "__main__":
    harness.main()
