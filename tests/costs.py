#!/usr/bin/python3
"""What each test costs: runs the tests of a build one after the other, alone, and prints wall time, processor time of the test
and of all that it started and waited for, and how many cores that is. From its table come the PROCESSORS of CMakeLists.txt.

Run as: costs.py BUILD_DIR [REGULAR-EXPRESSION]; whatever is labelled `long` is left out.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time


def tests_of(build, pattern):
    listed = subprocess.run(["ctest", "--show-only=json-v1", "-LE", "^long$"], cwd=build, check=True, text=True, stdout=subprocess.PIPE)
    for test in json.loads(listed.stdout)["tests"]:
        if "command" in test and re.search(pattern, test["name"]):
            yield test


def run(test, build):
    properties = {item["name"]: item["value"] for item in test.get("properties", [])}
    environment = {**os.environ, **dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(test["command"], cwd=properties.get("WORKING_DIRECTORY", build), env=environment, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, wall_s, cpu_s


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = os.path.abspath(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored by a shell's background jobs, and inherited
    for test in tests_of(build, sys.argv[2] if len(sys.argv) == 3 else ""):
        code, wall_s, cpu_s = run(test, build)
        print(f"{test['name']:32} {wall_s:7.1f} s {cpu_s:7.1f} CPU s {cpu_s / max(wall_s, 0.001):5.2f} cores"
              + (f"  exit code {code}" if code else ""), flush=True)


if __name__ == "__main__":
    main()
