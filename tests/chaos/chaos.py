"""Real daemons, launchers and ranks in network namespaces, faults drawn from a seed, and what must hold all the while.

    CHAOS_SEED=7 tests/chaos/chaos_test.py BUILD SOURCE          one run again
    CHAOS_FAULTS=300 tests/chaos/chaos_test.py BUILD SOURCE      a longer one

A seed gives the same faults, at the same times after each other; what they meet depends on the machine.
"""

import collections
import json
import os
import random
import signal
import time
from dataclasses import dataclass

from harness import PYTHON, wait_until
from namespaces import NamespacesTest

FOLDER = os.path.dirname(os.path.abspath(__file__))
PORT = 29400
TIMEOUT_MS = 1_000
SETTLES_WITHIN_S = 150  # A rank that has died often is started again after a minute and a quarter.
KINDS = ("kill rank", "kill daemon", "kill launcher", "stop rank", "stop daemon", "cut", "cut one way", "isolate", "slow")


@dataclass
class Fault:
    kind: str
    node: int
    other: int
    lasts_s: float
    then_s: float  # until the next one

    def __str__(self):
        return f"{self.kind} node {self.node}, {self.other}, {self.lasts_s:.1f} s, then {self.then_s:.1f} s"


def draw(seed, count, nodes):
    """Returns the faults of a seed."""
    choose = random.Random(f"rueda chaos {seed}")
    faults = []
    for _ in range(count):
        node, other = choose.sample(range(nodes), 2)
        faults.append(Fault(choose.choice(KINDS), node, other, choose.uniform(0.2, 3), choose.uniform(0.3, 3)))
    return faults


class Node:

    def __init__(self, test, number):
        self.test, self.number, self.launcher = test, number, None

    def start(self):
        self.launcher = self.test.start([
            "ip", "netns", "exec", self.test.spaces[self.number],
            os.path.join(self.test.build, "bin", "ruedarun"), "-np", "1", "--nnodes", str(self.test.NODES), "--node-rank",
            str(self.number), "--min-np", "1", "--rdzv-endpoint", f"10.77.0.1:{PORT}", "--rdzv-secret-file", self.test.secret,
            "--rank-timeout", "2", "--max-restarts", "10000", f"--failure-timeout={TIMEOUT_MS / 1000}", PYTHON,
            os.path.join(FOLDER, self.test.PROGRAM), self.test.logs,
            *self.test.ARGUMENTS
        ])

    def pid_of(self, what):
        """Returns the pid of its daemon ("ruedad ") or its rank (the test's PROGRAM), or None while it has none."""
        for pid, line in self.test.processes():
            if what not in line or "ip netns" in line or "ruedarun" in line:
                continue
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environment = file.read()
            except OSError:
                continue
            is_own = f"--node-id node{self.number} " in line or f"\0RUEDA_NODE_RANK={self.number}\0".encode() in environment
            if is_own:
                return pid
        return None

    def signal(self, what, number):
        pid = self.pid_of(what)
        try:
            if pid:
                os.kill(pid, number)
        except ProcessLookupError:
            pass
        return pid


class ChaosTest(NamespacesTest):
    NODES = 3
    PROGRAM = "chaos_rank.py"
    ARGUMENTS = ("5000",)

    def setUp(self):
        super().setUp()
        self.logs = os.path.join(self.folder, "logs")
        os.mkdir(self.logs)
        self.secret = os.path.join(self.folder, "secret")
        with open(self.secret, "w", encoding="utf-8") as file:
            file.write("a secret of these tests alone")
        os.chmod(self.secret, 0o600)
        self.nodes = [Node(self, number) for number in range(self.NODES)]
        self.seen, self.read_up_to = [], collections.Counter()
        self.last_steps = {}  # by slot

    # --- What is seen ----------------------------------------------------------------------------

    def read(self):
        """Takes in what the ranks have written since."""
        for name in os.listdir(self.logs):
            if name == "stop":
                continue
            with open(os.path.join(self.logs, name), "rb") as file:
                file.seek(self.read_up_to[name])
                text = file.read()
            text = text[:text.rfind(b"\n") + 1]
            self.read_up_to[name] += len(text)
            for line in text.splitlines():
                event = json.loads(line)
                self.seen.append(event)
                if event["what"] == "step":
                    self.last_steps[event["slot"]] = event

    def events(self):
        self.read()
        return sorted(self.seen, key=lambda event: event["at"])

    def are_whole(self, nodes, since):
        wanted = sum(2 ** node for node in nodes)
        self.read()
        last = self.last_steps
        return all(node in last and last[node]["members"] == wanted and last[node]["at"] > since for node in nodes)

    def wait_until_whole(self, nodes):
        since = time.monotonic()
        if not wait_until(lambda: self.are_whole(nodes, since), SETTLES_WITHIN_S):
            raise AssertionError(f"nodes {nodes} do not make steps together within {SETTLES_WITHIN_S} s:\n{self.story()}")

    def story(self):
        """Returns what the launchers have printed, and each slot's last words."""
        out = []
        for program in self.programs:
            out.append("\n".join(program.output().split("\n")[-25:]))
        out += [str(event) for event in self.events()[-20:]]
        return "\n---\n".join(out)

    # --- Faults ----------------------------------------------------------------------------------

    def down(self, a, b, way):
        self.run_tool("ip", "-n", self.spaces[a], "link", "set", f"to{b}", way)
        if way == "up":  # Its route has gone with it.
            self.run_tool("ip", "-n", self.spaces[a], "route", "replace", f"10.77.0.{b + 1}/32", "dev", f"to{b}", "src",
                          f"10.77.0.{a + 1}")

    def blackhole(self, a, b, is_cut):
        route = ["blackhole", f"10.77.0.{b + 1}/32"] if is_cut else [
            f"10.77.0.{b + 1}/32", "dev", f"to{b}", "src", f"10.77.0.{a + 1}"]
        self.run_tool("ip", "-n", self.spaces[a], "route", "replace", *route)

    def inflict(self, fault):
        node, others = self.nodes[fault.node], [n for n in range(self.NODES) if n != fault.node]
        if fault.kind == "kill rank":
            node.signal(self.PROGRAM, signal.SIGKILL)
        elif fault.kind == "kill daemon":
            node.signal("ruedad ", signal.SIGKILL)
        elif fault.kind == "kill launcher":
            # A launcher takes its node's vote with it: of a generation in which others are missing, too few might be left.
            self.wait_until_whole(list(range(self.NODES)))
            node.launcher.send(signal.SIGKILL)
            node.launcher.exit_code()
            time.sleep(fault.lasts_s)
            wait_until(lambda: not node.pid_of("ruedad ") and not node.pid_of(self.PROGRAM), 30)
            node.start()
        elif fault.kind in ("stop rank", "stop daemon"):
            what = self.PROGRAM if fault.kind == "stop rank" else "ruedad "
            pid = node.signal(what, signal.SIGSTOP)
            time.sleep(fault.lasts_s)
            try:
                if pid:
                    os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        elif fault.kind == "cut":
            self.down(fault.node, fault.other, "down")
            time.sleep(fault.lasts_s)
            self.down(fault.node, fault.other, "up")
            self.down(fault.other, fault.node, "up")
        elif fault.kind == "cut one way":
            self.blackhole(fault.node, fault.other, True)
            time.sleep(fault.lasts_s)
            self.blackhole(fault.node, fault.other, False)
        elif fault.kind == "slow":
            self.shape("add", fault.node, fault.other)
            time.sleep(fault.lasts_s)
            self.shape("del", fault.node, fault.other)
        elif fault.kind == "isolate":
            for other in others:
                self.blackhole(fault.node, other, True)
                self.blackhole(other, fault.node, True)
            time.sleep(fault.lasts_s)
            for other in others:
                self.blackhole(fault.node, other, False)
                self.blackhole(other, fault.node, False)

    # --- What must hold --------------------------------------------------------------------------

    def check_sums(self, events):
        """No sum is wrong, and whoever has the same step of the same generation has the same members in it."""
        self.assertEqual([event for event in events if event["what"] == "wrong"], [])
        seen, leaders = {}, {}  # The process of the lowest slot: a job that has lost all state counts generations anew.
        for event in events:
            lowest = event.get("members", 0) & -event.get("members", 0)
            at = (event.get("generation"), lowest)
            if event["what"] == "synced" and 2 ** event["slot"] == lowest:
                leaders[at] = event["pid"]
            if event["what"] == "step":
                key = (*at, leaders.get(at), event["step"])
                self.assertEqual(seen.setdefault(key, event["members"]), event["members"], event)

    def check_order(self, events):
        """A process never goes back, but to its last commit in a later generation; and weights are the same after each sync."""
        last, weights = {}, {}
        for event in events:
            key = (event["slot"], event["pid"])
            if event["what"] == "step":
                before = last.get(key)
                if before:
                    self.assertGreaterEqual(event["generation"], before["generation"], (before, event))
                    if event["generation"] == before["generation"]:
                        self.assertEqual(event["step"], before["step"] + 1, (before, event))
                last[key] = event
            if event["what"] == "synced":
                at = (event["generation"], event["members"])
                self.assertEqual(weights.setdefault(at, (event["step"], event["weights"])), (event["step"], event["weights"]), event)

    def check_one_side(self, events):
        """Once a generation has made a step, all members of an earlier one do not begin another step of that."""
        leaders = {}  # The process of the lowest slot in each: a job that has lost all state counts generations anew.
        steps = collections.defaultdict(lambda: collections.defaultdict(list))
        for event in events:
            lowest = (event.get("members", 0) & -event.get("members", 0)).bit_length() - 1
            if event["what"] == "synced" and event["slot"] == lowest:
                leaders[event["generation"], event["members"]] = event["pid"]
            if event["what"] == "step":
                key = (event["generation"], event["members"])
                steps[(*key, leaders.get(key))][event["step"]].append(event)
        first, last = {}, {}
        for key, made in steps.items():
            first[key] = min(event["at"] for found in made.values() for event in found)
            whole = [found for found in made.values() if len({event["slot"] for event in found}) == key[1].bit_count()]
            last[key] = max((min(event["began"] for event in found) for found in whole), default=first[key])
        order = sorted(first, key=first.get)
        for earlier, later in zip(order, order[1:]):
            self.assertLessEqual(last[earlier], first[later], f"generation {earlier} goes on beside {later}")

    def check_errors(self, events):
        """Every error names somebody."""
        for event in events:
            if event["what"] == "error":
                self.assertRegex(event["text"], r"rank \d|node\d|node |slot \d|daemon|--elastic-timeout|ranks", event)

    def note_held(self):
        """Notes how many descriptors and mappings each process of the job has, while all is well."""
        time.sleep(2 * TIMEOUT_MS / 1000)  # Links that are not used any more have been let go.
        for pid, line in self.processes():
            try:
                with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                    self.held[pid, line].append((len(os.listdir(f"/proc/{pid}/fd")), sum(1 for _ in maps)))
            except OSError:
                pass

    def check_held(self):
        """No process that lived through many generations has more and more descriptors, or mappings."""
        for (_, line), counts in self.held.items():
            for which, slack in ((0, 16), (1, 64)):
                early, late = [max(part) for part in ([count[which] for count in counts[:2]], [count[which] for count in counts[-2:]])]
                self.assertLessEqual(late, early + slack, f"{line}: {counts}")

    def run_faults(self, faults):
        self.held = collections.defaultdict(list)
        for node in self.nodes:
            node.start()
        everybody = list(range(self.NODES))
        self.wait_until_whole(everybody)
        self.note_held()
        for number, fault in enumerate(faults):
            self.inflict(fault)
            time.sleep(fault.then_s)
            if number % 10 == 9:
                self.wait_until_whole(everybody)
                self.note_held()
        self.wait_until_whole(everybody)
        self.note_held()
        with open(os.path.join(self.logs, "stop"), "w", encoding="utf-8"):
            pass
        for node in self.nodes:
            self.assertEqual(node.launcher.exit_code(SETTLES_WITHIN_S), 0, self.story())
        events = self.events()
        self.check_sums(events)
        self.check_order(events)
        self.check_one_side(events)
        self.check_errors(events)
        self.check_held()
        self.assert_nothing_left()
        return events
