"""Runs groups of processes that end together."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time


class CompareError(Exception):
    """An error; its text is one sentence for the user."""


def run_group(commands, timeout_s, environments=None):
    """Runs commands at once, each in a process group of its own, and returns their stdouts.

    When one fails or time is up, the others are ended, and the error has the end of its stderr."""
    environments = environments or [None] * len(commands)
    processes = []
    with contextlib.ExitStack() as stack:
        outputs = []
        try:
            for command, environment in zip(commands, environments):
                out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
                outputs.append((out, err))
                processes.append(subprocess.Popen(
                    command, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                    env={**os.environ, **(environment or {})}, start_new_session=True))
            wait_for_all(processes, time.monotonic() + timeout_s)
        finally:
            end_groups(processes)
        # A process that failed by itself is the cause, and comes before those that were ended because of it.
        ended = [one for one in zip(processes, commands, outputs) if one[0].returncode != 0]
        for process, command, streams in sorted(ended, key=lambda one: was_ended(one[0])):
            raise CompareError(failure_text(process, command, *streams, timeout_s))
        for out, _ in outputs:
            out.seek(0)
        return [out.read() for out, _ in outputs]


def wait_for_all(processes, deadline):
    """Waits until all have ended, or one has failed, or the deadline has passed."""
    waiting = list(processes)
    while waiting and time.monotonic() < deadline:
        for process in list(waiting):
            if process.poll() is not None:
                waiting.remove(process)
                if process.returncode != 0:
                    return
        time.sleep(0.02)


def end_groups(processes):
    """Ends the groups, by SIGTERM first, so that a launcher can clean up behind itself."""
    for sign, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
        deadline = time.monotonic() + patience_s
        while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
            time.sleep(0.02)


def was_ended(process):
    return process.returncode in (-signal.SIGTERM, -signal.SIGKILL)


def failure_text(process, command, out, err, timeout_s):
    tail = []
    for stream in (out, err):
        stream.seek(0)
        tail += stream.read().strip().splitlines()[-8:]
    if was_ended(process):
        how = f"was ended (a rank beside it failed, or {timeout_s} s were over)"
    else:
        how = f"failed with status {process.returncode}"
    return " ".join(map(str, command)) + f" {how}:\n  " + "\n  ".join(tail)
