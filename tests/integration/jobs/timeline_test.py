#!/usr/bin/python3
"""Tests the timeline of a job of two nodes: valid, whole, on one clock, and bounded.

Run as: timeline_test.py BUILD SOURCE."""

import collections
import json
import os
import signal
import time
import xml.dom.minidom

from harness import PYTHON, SOURCE, IntegrationTest, main, program, rank, wait_until

STEPS = 100
MS = 1000.0  # in microseconds


def read_timeline(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def spans(timeline, **wanted):
    """Returns the complete events that have these fields."""
    return [event for event in timeline["traceEvents"]
            if event["ph"] == "X" and all(event[key] == value for key, value in wanted.items())]


def marks(timeline, prefix):
    return [event for event in timeline["traceEvents"] if event["ph"] == "i" and event["name"].startswith(prefix)]


def track_names(timeline):
    return {(event["pid"], event["tid"]): event["args"]["name"]
            for event in timeline["traceEvents"] if event["name"] == "thread_name"}


class TimelineTest(IntegrationTest):
    def assert_well_formed(self, timeline):
        """Checks that every track runs forwards and its spans nest, and that every track and process has a name."""
        names = track_names(timeline)
        processes = {event["pid"] for event in timeline["traceEvents"] if event["name"] == "process_name"}
        # To a viewer all threads are those of one machine: a number that occurs twice, or that of a process, would join tracks.
        threads = [thread for _, thread in names]
        self.assertEqual(len(threads), len(set(threads)))
        self.assertFalse({0} & set(threads) | processes & set(threads))
        by_track = collections.defaultdict(list)
        for event in timeline["traceEvents"]:
            if event["ph"] == "M":
                continue
            self.assertIn(event["ph"], ("X", "i"))
            self.assertIn((event["pid"], event["tid"]), names)
            self.assertIn(event["pid"], processes)
            by_track[event["pid"], event["tid"]].append(event)
        for track, events in by_track.items():
            last_us, open_ends = 0.0, []
            for event in events:
                self.assertGreaterEqual(event["ts"], last_us, (names[track], event))
                last_us = event["ts"]
                # The tolerance is a nanosecond, because decimal fractions are not exact.
                while open_ends and open_ends[-1] <= event["ts"] + 0.001:
                    open_ends.pop()
                if event["ph"] == "i":
                    continue
                self.assertGreaterEqual(event["dur"], 0, event)
                end_us = event["ts"] + event["dur"]
                if open_ends:
                    self.assertLessEqual(end_us, open_ends[-1] + 0.002, (names[track], event))
                open_ends.append(end_us)
        return by_track

    def run_job(self, *arguments, action=f"steps:{STEPS}:1000", faults=(None, None), extra=()):
        """Returns a timeline of two nodes with two ranks each, and the daemons."""
        daemons = [self.start_daemon(f"n{i}", fault=fault) for i, fault in enumerate(faults)]
        path = os.path.join(self.folder, "timeline.json")
        job = self.start_job(daemons, [2, 2], rank("init", action, "shutdown"),
                             extra=["--timeline-filename", path, *arguments, *extra])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.assertIn(f"ruedarun: the timeline is in {path}", job.output())
        return read_timeline(path), job

    def test_a_hundred_steps_of_two_nodes(self):
        timeline, _ = self.run_job()
        by_track = self.assert_well_formed(timeline)
        names = track_names(timeline)
        for node in (0, 1):
            [track] = [track for track, name in names.items() if track[0] == node + 1 and name == "steps"]
            counts = collections.Counter(event["name"] for event in by_track[track])
            self.assertEqual(counts["NEGOTIATE"], STEPS)
            self.assertEqual(counts["ALLREDUCE"], STEPS)
            self.assertEqual(counts["QUEUE"], STEPS)
            for local in (2 * node, 2 * node + 1):
                self.assertEqual(counts[f"ready {local}"], STEPS)
                [steps] = [track for track, name in names.items() if name == f"rank {local}"]
                counted = collections.Counter(event["name"].split()[0] for event in by_track[steps])
                self.assertEqual(counted, {"STEP": STEPS, "FORWARD": STEPS, "BACKWARD": STEPS, "EXPOSED": STEPS})
            for stage in ("LOCAL_REDUCE", "RING", "COPY_OUT"):
                self.assertEqual(len(spans(timeline, pid=node + 1, name=stage)), STEPS, stage)
        said = timeline["rueda"]
        self.assertEqual([node["node_id"] for node in said["nodes"]], ["n0", "n1"])
        self.assertEqual([node["dropped_events"] for node in said["nodes"]], [0, 0])
        self.assertEqual(said["nodes_without_end"], [])
        self.assertEqual(said["clock"], "CLOCK_MONOTONIC of node n0")
        self.assertEqual(marks(timeline, "chunk"), [])

    def test_messages_between_ranks_have_spans_at_both_ends(self):
        daemons = [self.start_daemon(f"n{i}") for i in range(2)]
        path = os.path.join(self.folder, "timeline.json")
        command = [PYTHON, os.path.join(SOURCE, "tests", "integration", "ranks", "transfers_rank.py"), "ring"]
        job = self.start_job(daemons, [1, 1], command, extra=["--timeline-filename", path])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        timeline = read_timeline(path)
        self.assert_well_formed(timeline)
        for name in ("SEND", "RECEIVE"):
            counted = collections.Counter((event["pid"], event["args"]["rank"], event["args"]["peer"])
                                          for event in spans(timeline, name=name))
            self.assertEqual(set(counted), {(1, 0, 1), (2, 1, 0)}, name)
            self.assertEqual(len(set(counted.values())), 1, "each message has two ends")
        sizes = [sorted(event["args"]["bytes"] for event in spans(timeline, name=name)) for name in ("SEND", "RECEIVE")]
        self.assertEqual(*sizes)

    def test_chunks_are_marked_on_request(self):
        timeline, _ = self.run_job("--timeline-chunks", action="steps:3:1000000")
        self.assert_well_formed(timeline)
        self.assertGreater(len(marks(timeline, "chunk")), 3)

    def check_skew(self, skew_ms):
        """Runs a job with pauses, of which the ranks say when they were, by the clock that all of this machine share."""
        timeline, job = self.run_job(action=f"steps:{STEPS}:1000", faults=(None, f"clock:{skew_ms}"))
        self.assert_well_formed(timeline)
        other = timeline["rueda"]["nodes"][1]
        self.assertLess(other["clock_error_us"], 1 * MS, other)
        self.assertAlmostEqual(other["clock_offset_us"], -skew_ms * MS, delta=1 * MS)
        # An all-reduce ends nowhere before it has begun everywhere, and it ends everywhere at about the same time.
        ends = collections.defaultdict(dict)
        begins = collections.defaultdict(dict)
        for event in spans(timeline, name="ALLREDUCE"):
            number = event["args"]["operation"]
            begins[number][event["pid"]] = event["ts"]
            ends[number][event["pid"]] = event["ts"] + event["dur"]
        self.assertEqual(len(ends), STEPS)
        for number, by_node in ends.items():
            self.assertEqual(set(by_node), {1, 2}, (number, timeline["rueda"]))
            self.assertGreater(min(by_node.values()), max(begins[number].values()) - 1 * MS, number)

    def test_a_clock_that_is_ahead(self):
        self.check_skew(250)

    def test_a_clock_that_is_behind(self):
        self.check_skew(-250)

    def test_a_file_that_cannot_be_written_is_said_and_the_job_runs(self):
        [daemon] = self.start_daemons("n0")
        job = self.start_job([daemon], [2], rank("init", "steps:3:1000", "shutdown"),
                             extra=["--timeline-filename", os.path.join(self.folder, "none", "timeline.json")])
        self.assertEqual(job.exit_codes(), [0], job.output())
        self.assertRegex(job.output(), r"ruedarun: cannot write the timeline \S+/none/timeline.json: No such file")

    def test_variables_of_rueda_and_of_horovod(self):
        [daemon] = self.start_daemons("n0")
        for variable in ("RUEDA_TIMELINE", "HOROVOD_TIMELINE"):
            path = os.path.join(self.folder, f"{variable}.json")
            job = self.start_job([daemon], [2], rank("init", "steps:3:1000", "shutdown"), extra_env={variable: path})
            self.assertEqual(job.exit_codes(), [0], job.output())
            self.assert_well_formed(read_timeline(path))

    def ruedactl(self, daemon, *arguments, code=0):
        """Returns what ruedactl prints."""
        started = self.start([program("ruedactl"), "--socket", daemon.socket, *arguments])
        self.assertEqual(started.exit_code(), code, started.output())
        return started.output()

    def finished(self, path):
        """Returns the timeline, once it is whole."""
        def look():
            try:
                return read_timeline(path)
            except (OSError, json.JSONDecodeError):
                return None
        timeline = wait_until(look)
        self.assertIsNotNone(timeline, path)
        return timeline

    def test_an_operator_begins_and_ends_it_on_any_node(self):
        daemons = self.start_daemons("n0", "n1")
        job = self.start_job(daemons, [2, 2], rank("init", "loop:1000"))
        job.wait_for(0, "looping")
        for daemon in daemons:
            path = os.path.join(self.folder, f"{daemon.node_id}.json")
            self.ruedactl(daemon, "trace", "start", path)
            wait_until(lambda: os.path.exists(path))
            if daemon is daemons[0]:
                said = self.ruedactl(daemon, "trace", "start", path, code=1)
                self.assertIn(f"writes a timeline already, to {path}; stop it first", said)
            time.sleep(1)
            self.ruedactl(daemon, "trace", "stop")
            timeline = self.finished(path)
            self.assert_well_formed(timeline)
            self.assertEqual([len(spans(timeline, pid=pid, name="RING")) > 10 for pid in (1, 2)], [True, True])
        self.assertIn("writes no timeline", self.ruedactl(daemons[0], "trace", "stop", code=1))
        address = ["--address", daemons[0].addresses["control"]]
        refused = self.start([program("ruedactl"), *address, "trace", "start", "/tmp/x.json"])
        self.assertEqual(refused.exit_code(), 1)
        self.assertIn("over the daemon's unix socket alone", refused.output())
        for launcher in job.launchers:
            launcher.send(signal.SIGTERM)
        job.exit_codes()

    def test_a_program_begins_and_ends_it(self):
        daemons = self.start_daemons("n0", "n1")
        path = os.path.join(self.folder, "program.json")
        code = f"""
import sys
import rueda
import numpy as np
rueda.init()
for step in range(60):
    if step == 20 and rueda.rank() == int(sys.argv[1]):
        rueda.start_timeline({path!r})
    if step == 20:
        rueda.barrier("begun")
        import time; time.sleep(0.5)
    for i in range(3):
        rueda.allreduce(np.ones(1000, np.float32), name=f"gradient.{{i}}")
    if step == 40:
        rueda.barrier("ends")
        if rueda.rank() == int(sys.argv[1]):
            rueda.stop_timeline()
rueda.shutdown()
"""
        for number in (0, 3):
            job = self.start_job(daemons, [2, 2], [PYTHON, "-c", code, str(number)])
            self.assertEqual(job.exit_codes(), [0, 0], job.output())
            timeline = read_timeline(path)
            self.assert_well_formed(timeline)
            per_node = collections.Counter(event["pid"] for event in spans(timeline, name="ALLREDUCE"))
            for pid in (1, 2):
                self.assertGreaterEqual(per_node[pid], 3 * 20)
                self.assertLess(per_node[pid], 3 * 60)
            os.remove(path)

    def test_the_summary_finds_the_slowest_rank(self):
        daemons = self.start_daemons("n0", "n1")
        path = os.path.join(self.folder, "slow.json")
        code = """
import time
import rueda
import numpy as np
rueda.init()
for step in range(20):
    time.sleep(0.03 if rueda.rank() == 2 else 0.01)
    handles = [rueda.allreduce_async(np.ones(1000, np.float32), name=f"gradient.{i}") for i in range(3)]
    for handle in handles:
        rueda.synchronize(handle)
rueda.shutdown()
"""
        job = self.start_job(daemons, [2, 2], [PYTHON, "-c", code], extra=["--timeline-filename", path])
        self.assertEqual(job.exit_codes(), [0, 0], job.output())
        self.assertIn("the slowest is rank 2", self.ruedactl(daemons[0], "trace", "summary", path))
        summary = json.loads(self.ruedactl(daemons[0], "--json", "trace", "summary", path))
        by_rank = {item["rank"]: item for item in summary["ranks"]}
        self.assertEqual(set(by_rank), {0, 1, 2, 3})
        for number, item in by_rank.items():
            self.assertEqual(item["steps"], 19)
            parts = sum(item[part] for part in ("forward_ms", "backward_ms", "exposed_ms", "idle_ms"))
            self.assertAlmostEqual(parts, item["step_ms"], delta=0.01)
            if number != 2:  # the rank waits for rank 2, and its node has nothing to do
                self.assertGreater(item["idle_ms"], 10, item)
        self.assertGreater(by_rank[2]["forward_ms"], 28)
        self.assertGreaterEqual(by_rank[2]["times_last"], 55)
        picture = path + ".svg"
        self.assertIn(picture, self.ruedactl(daemons[0], "trace", "plot", path, "--steps", "5"))
        drawn = xml.dom.minidom.parse(picture)
        self.assertGreater(len(drawn.getElementsByTagName("rect")), 50)
        texts = [text.firstChild.data for text in drawn.getElementsByTagName("text")]
        self.assertEqual([text for text in texts if text.startswith("step ")], [f"step {i}" for i in range(16, 21)])
        rows = [text.rpartition(" ")[0] for text in texts if text.startswith("n1 ")]
        self.assertEqual(list(dict.fromkeys(rows)), ["n1 rank", "n1 local reduce", "n1 ring", "n1 copy out"])
        self.assertIn("no whole timeline", self.ruedactl(daemons[0], "trace", "summary", picture, code=1))

    def test_a_death_leaves_a_whole_file(self):
        daemons = self.start_daemons("n0", "n1")
        path = os.path.join(self.folder, "timeline.json")
        job = self.start_job(daemons, [2, 2], rank("init", "loop:1000"), extra=["--timeline-filename", path])
        job.wait_for(0, "looping")
        os.kill(job.pid_of(3), signal.SIGKILL)
        self.assertNotIn(0, job.exit_codes())
        self.assert_well_formed(read_timeline(path))


if __name__ == "__main__":
    main()
