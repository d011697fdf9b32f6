#!/usr/bin/python3
"""Runs a training script in this rank, and on rank 0, while the daemons still run, prints what the
ring moved. quickstart.sh puts it between ruedarun and the example.

    quickstart_rank.py SCRIPT ARGUMENT...
"""

import os
import runpy
import sys

import metrics_summary


def main():
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    # Python would have put this folder on the path, had it run the script itself.
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    if os.environ.get("RANK") == "0" and os.environ.get("RUEDA_HTTP_ADDRESSES"):
        print("what the ring moved, from the daemons' /metrics:", flush=True)
        status = metrics_summary.main([os.environ["RUEDA_HTTP_ADDRESSES"]])
        sys.stdout.flush()
        sys.exit(status)


if __name__ == "__main__":
    main()
