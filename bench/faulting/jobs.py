"""Jobs that faults are made in: one launcher with virtual nodes, or a launcher in each of several network namespaces; and Gloo's under
torchrun."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from comparing.network import join_nodes, run
from comparing.training_jobs import PYTHON, ROOT, JobError, environment_of

RANK = str(ROOT / "bench" / "faults_rank.py")
PATIENCE_S = 180
PORT = 29400


class Log:
    """Collects the events of the launchers' output."""

    def __init__(self):
        self.events = []
        self.other = []
        self._changed = threading.Condition()
        self._open = 0

    def follow(self, pipe):
        with self._changed:
            self._open += 1
        threading.Thread(target=self._read, args=(pipe,), daemon=True).start()

    def _read(self, pipe):
        for line in pipe:
            with self._changed:
                try:
                    self.events.append(json.loads(line[line.index("{"):]))
                except ValueError:
                    self.other.append(line)
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def comes(self, condition, patience_s=PATIENCE_S):
        """Returns whether what has been said fulfils the condition before the time is over, or all have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0 or condition(self.events), patience_s)
            return condition(self.events)

    def wait_for(self, what, condition):
        if not self.comes(condition):
            raise JobError(f"{what} did not come within {PATIENCE_S} s:\n{''.join(self.other[-30:])}")


class Job:
    """A job that runs. `spaces` are the nodes' namespaces, if they have some."""

    def __init__(self, options, layout, log, launchers, spaces=()):
        self.options, self.log, self.launchers, self.spaces = options, log, launchers, spaces
        self.nodes, self.per_node = layout
        self.size = self.nodes * self.per_node

    def slots_of(self, node):
        return set(range(node * self.per_node, (node + 1) * self.per_node))

    def node_of(self, slot):
        return slot // self.per_node

    def daemon_of(self, node):
        """Returns the pid of the daemon that a launcher has started for a node."""
        parents = {f"PPid:\t{launcher.pid}\n" for launcher in self.launchers}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                status = Path("/proc", name, "status").read_text(encoding="utf-8")
                command = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if command[0].endswith(b"ruedad") and f"node{node}".encode() in command and any(line in status for line in parents):
                return int(name)
        raise JobError(f"node{node} has no daemon")

    def cut(self, sides, is_cut):
        """Nothing passes between the nodes of the two sides any more, or all does again."""
        for here, there in [(a, b) for a in sides[0] for b in sides[1]] + [(b, a) for a in sides[0] for b in sides[1]]:
            words = ["ip", "-n", self.spaces[here].netns, "route", "add" if is_cut else "del", "blackhole",
                     f"{self.spaces[there].address}/32"]
            run(words)


def elastic_command(options, extra, rank):
    return [str(options.build / "bin" / "ruedarun"), "--no-prefix", "--failure-timeout", str(options.failure_timeout), "--max-restarts",
            "100000", *extra, PYTHON, *rank]


@contextlib.contextmanager
def rueda_job(options, layout, flags=(), is_joined=False):
    """Runs an elastic job of nodes x ranks, and ends it by its file."""
    nodes, per_node = layout
    flags = [*([] if "--min-np" in flags else ["--min-np", "1"]), *flags]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder())
        rank = [RANK, "rueda", str(options.state_mb * 1_000_000), str(folder / "stop")]
        spaces = join_nodes(stack, nodes, None) if is_joined else ()
        if is_joined:
            secret = folder / "secret"
            secret.write_text("a secret of this benchmark alone", encoding="utf-8")
            secret.chmod(0o600)
            commands = [
                space.command(elastic_command(
                    options, ["-np", str(per_node), "--nnodes", str(nodes), "--node-rank", str(node), "--rdzv-endpoint",
                              f"{spaces[0].address}:{PORT}", "--rdzv-secret-file", str(secret), *flags], rank))
                for node, space in enumerate(spaces)
            ]
        else:
            virtual = ["--virtual-nodes", str(nodes)] if nodes > 1 else []
            commands = [elastic_command(options, ["-np", str(nodes * per_node), *virtual, *flags], rank)]
        log = Log()
        launchers = [stack.enter_context(_started(command, options, log)) for command in commands]
        yield Job(options, layout, log, launchers, spaces)
        (folder / "stop").touch()
        for launcher in launchers:
            if launcher.wait(PATIENCE_S) != 0:
                raise JobError(f"a launcher ended with {launcher.returncode}:\n{''.join(log.other[-30:])}")


@contextlib.contextmanager
def gloo_job(options, layout, faults):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder())
        # Debian's torchrun cannot leave the processes' output alone (under Python 3.11 a flag of no bit has no name).
        command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(layout[0] * layout[1]),
                   "--max_restarts", str(faults), "-r", "1", "-t", "1", "--log_dir", str(folder), RANK, "gloo",
                   str(options.state_mb * 1_000_000), str(folder / "stop")]
        log = Log()
        launcher = stack.enter_context(_started(command, options, log))
        yield Job(options, (1, layout[0] * layout[1]), log, [launcher])
        (folder / "stop").touch()
        time.sleep(1)


@contextlib.contextmanager
def _folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def _started(command, options, log):
    with subprocess.Popen(command, env=environment_of(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as launcher:
        log.follow(launcher.stdout)
        try:
            yield launcher
        finally:
            launcher.terminate()
            try:
                launcher.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(launcher.pid, signal.SIGKILL)
