"""Writes what a comparison found, as Markdown."""

from .machine import NOISE_LIMIT_CORES
from .work import format_size

LIMITS = (
    ("memcpy of 64 MiB, 1 thread", "memcpy_1_thread_GBps", "GB/s"),
    ("2 threads", "memcpy_2_threads_GBps", "GB/s"),
    ("sum of 2 sources, read and written, 1 thread", "sum_2_sources_1_thread_GBps", "GB/s"),
    ("2 threads", "sum_2_sources_2_threads_GBps", "GB/s"),
    ("of 4 sources, 1 thread", "sum_4_sources_1_thread_GBps", "GB/s"),
    ("2 threads", "sum_4_sources_2_threads_GBps", "GB/s"),
    ("TCP one way", "tcp_one_way_GBps", "GB/s"),
    ("both ways at once, sum", "tcp_two_way_GBps", "GB/s"),
    ("AES-128-GCM in pieces of 256 KiB, 1 thread", "aes_128_gcm_GBps", "GB/s"),
    ("a cache line from one CPU to another and back", "cache_line_round_trip_ns", "ns"),
)


def number(value):
    """Formats a number with three significant digits."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}"


def with_range(found, unit=""):
    if found is None:
        return "–"
    return f"{number(found['median'])}{unit} ({number(found['min'])}..{number(found['max'])})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def share_of(ratio):
    """Returns the floor's time as a share of Rueda's, in per cent."""
    return "–" if ratio is None else with_range({key: 100 * value for key, value in ratio.items()}, " %")


def limits_line(limits):
    said = [f"{what} {number(limits[key])} {unit}" for what, key, unit in LIMITS if limits.get(key) is not None]
    return f"Limits in the same run: {'; '.join(said)}. TCP under {limits['tcp_congestion']}."


def setup_line(setup):
    what = f"A step of {setup['model']} ({setup['tensors']} tensors), " if setup["model"] else ""
    each = f"{setup['iters']} iterations" if setup["iters"] else "200 iterations up to 64 KiB, 50 up to 4 MiB, 20 above"
    beside = f", beside {setup['hogs']} processes that want a CPU each" if setup["hogs"] else ""
    return (f"{what}{setup['np']} ranks on {setup['nodes']} nodes of this machine with {setup['cpus']} CPUs, over "
            f"{setup['network']}{beside}; float32 sum in place, {each}, {setup['rounds']} alternating rounds; medians, and "
            f"the smallest and the largest of the rounds. TCP congestion control of all sides: {setup['congestion']}.")


def noise_line(rounds):
    runs = [run for one in rounds for run in one.values()]
    disturbed = sum(run["disturbed"] for run in runs)
    said = f"Other work on the machine: at most {max(run['noise_cores'] for run in runs):.2f} cores in any run that counts"
    if disturbed:
        return f"{said}; {disturbed} of them stayed above {NOISE_LIMIT_CORES:.2f} and are to be distrusted."
    return said + "."


def markdown(report):
    rows, others = report["rows"], list(report["rows"][0]["ratios"])
    names = list(rows[0]["sides"])
    ours = names[0]
    lines = [setup_line(report["setup"]), ""]
    lines += table(["time, µs", *names], (
        [format_size(row["bytes"]), *(with_range(row["sides"][name]["time_us"]) for name in names)] for row in rows))
    if others:
        lines += ["", *table([f"times {ours}'s", *(f"of the {name}" if name == "floor" else name for name in others)], (
            [format_size(row["bytes"]),
             *(share_of(row["ratios"][name]) if name == "floor" else with_range(row["ratios"][name], "×")
               for name in others)] for row in rows))]
    lines += ["", *table(["CPU s/GB", *names], (
        [format_size(row["bytes"]), *(with_range(row["sides"][name]["cpu_s_per_GB"]) for name in names)]
        for row in rows)), ""]
    counts = [f"{name} {number(side['order_messages_per_step']['median'])}" for name, side in rows[0]["sides"].items()
              if side["order_messages_per_step"]]
    if counts:
        lines.append("Messages between daemons to agree on the order, a step: " + ", ".join(counts) + ".")
    lines.append(limits_line(report["limits"]))
    lines.append(noise_line(report["rounds"]))
    lines += [f"Left out: {name} ({why})." for name, why in report["left_out"].items()]
    if not report["cpu_includes_daemons"]:
        lines.append("Rueda's CPU seconds lack the daemons': they could not be found.")
    return "\n".join(lines) + "\n"
