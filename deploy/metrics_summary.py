#!/usr/bin/python3
"""Prints what daemons moved, read from their /metrics: per node the operations, the bytes reduced and
copied, and per neighbour the bytes sent and received.

    metrics_summary.py HOST:PORT...             addresses as $RUEDA_HTTP_ADDRESSES has them
    metrics_summary.py --json HOST:PORT,HOST:PORT
    metrics_summary.py --tls-dir FOLDER HOST:PORT       of a daemon with certificates, with one of the role metrics or operator
"""

import argparse
import json
import os
import re
import ssl
import sys
import urllib.request

TIMEOUT_S = 10
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def parse(text):
    """The samples of a text exposition, as (name, labels, value)."""
    samples = []
    for line in text.splitlines():
        match = None if line.startswith("#") else SAMPLE.match(line)
        if match:
            labels = {name: re.sub(r"\\.", lambda escape: ESCAPES.get(escape.group(), escape.group()), value)
                      for name, value in LABEL.findall(match.group(2) or "")}
            samples.append((match.group(1), labels, float(match.group(3))))
    return samples


def summarise(samples):
    """One daemon's samples as a dictionary: totals over its jobs, and bytes per neighbour."""
    def total(name, **wanted):
        return int(sum(value for sample, labels, value in samples if sample == name and
                       all(labels.get(key) == text for key, text in wanted.items())))

    peers = {}
    for direction in ("sent", "received"):
        for name, labels, value in samples:
            if name == f"rueda_network_{direction}_bytes_total":
                peer = peers.setdefault(labels["peer"], {"sent_bytes": 0, "received_bytes": 0})
                peer[f"{direction}_bytes"] += int(value)
    nodes = [labels.get("node", "") for name, labels, _ in samples if name == "rueda_build_info"]
    return {
        "node": nodes[0] if nodes else "",
        "operations": total("rueda_operations_total", result="ok"),
        "failed_operations": total("rueda_operations_total", result="error"),
        "tensors": total("rueda_tensors_total"),
        "reduced_bytes": total("rueda_reduced_bytes_total"),
        "copied_in_bytes": total("rueda_copied_in_bytes_total"),
        "copied_out_bytes": total("rueda_copied_out_bytes_total"),
        "peers": peers,
    }


def make_context(folder):
    """Returns how to show the certificate of a folder; None without one."""
    if not folder:
        return None
    context = ssl.create_default_context(cafile=os.path.join(folder, "ca.crt"))
    context.load_cert_chain(os.path.join(folder, "tls.crt"), os.path.join(folder, "tls.key"))
    return context


def fetch(address, context=None):
    # A proxy of the environment has nothing to do with the daemons of a cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(f"{'https' if context else 'http'}://{address}/metrics", timeout=TIMEOUT_S) as reply:
        return summarise(parse(reply.read().decode()))


def human_bytes(count):
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.1f} {unit}" if unit != "B" else f"{count} B"
        count /= 1000


def describe(summary):
    lines = [f"  node {summary['node']}: {summary['operations']} operations on {summary['tensors']} "
             f"tensors, {human_bytes(summary['reduced_bytes'])} reduced"]
    if summary["failed_operations"]:
        lines.append(f"    failed: {summary['failed_operations']} operations")
    lines.append(f"    copied in {human_bytes(summary['copied_in_bytes'])}, "
                 f"out {human_bytes(summary['copied_out_bytes'])}")
    for peer, moved in sorted(summary["peers"].items()):
        lines.append(f"    with {peer}: sent {human_bytes(moved['sent_bytes'])}, "
                     f"received {human_bytes(moved['received_bytes'])}")
    return "\n".join(lines)


def split_addresses(texts):
    return [address for text in texts for address in text.split(",") if address]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("addresses", nargs="*", metavar="HOST:PORT",
                        default=[os.environ.get("RUEDA_HTTP_ADDRESSES", "")])
    parser.add_argument("--json", action="store_true", help="one JSON list, a daemon an element")
    parser.add_argument("--tls-dir", help="folder with tls.crt, tls.key and ca.crt")
    options = parser.parse_args(arguments)
    try:
        context = make_context(options.tls_dir)
    except OSError as error:
        print(f"metrics_summary: --tls-dir {options.tls_dir}: {error}", file=sys.stderr)
        return 1
    addresses = split_addresses(options.addresses)
    if not addresses:
        parser.error("name at least one daemon as HOST:PORT, or set RUEDA_HTTP_ADDRESSES")
    summaries = []
    for address in addresses:
        try:
            summaries.append(fetch(address, context))
        except OSError as error:
            print(f"metrics_summary: no metrics from {address}: {error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(summaries, indent=2))
    else:
        print("\n".join(describe(summary) for summary in summaries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
