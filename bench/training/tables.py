"""Prints and draws the results of bench/train.py."""

import statistics

from comparing import plot
from comparing.work import format_size

def median_ms(results):
    return statistics.median(result["seconds"] for result in results) * 1e3


def rows_of(found):
    """Returns (labels, columns), each in its order."""
    labels, columns = {}, {}
    for label, column in found:
        labels.setdefault(label)
        columns.setdefault(column)
    return list(labels), list(columns)


def grid(found, cell):
    labels, columns = rows_of(found)
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for label in labels:
        lines.append(f"| {label} | " + " | ".join(
            cell(label, column) if (label, column) in found else "" for column in columns) + " |")
    return "\n".join(lines)


def exposed_ms(found, label, column):
    """Returns how much longer a step takes than the same work without communication."""
    return median_ms(found[label, column]) - median_ms(found["local", column])


def share(found, label, column):
    """Returns throughput, as a share of that of the same work without communication."""
    return median_ms(found["local", column]) / median_ms(found[label, column])


def steps(found):
    """Writes milliseconds a step, how much of them is exposed communication, and what throughput is left."""
    return grid(found, lambda label, column: f"{median_ms(found[label, column]):.1f}" if label == "local" else
                f"{median_ms(found[label, column]):.1f} ({exposed_ms(found, label, column):+.1f}, "
                f"{share(found, label, column):.0%})")


def spreads(found):
    """Writes milliseconds a step, with the smallest and the largest of the rounds."""
    def cell(label, column):
        rounds = [result["seconds"] * 1e3 for result in found[label, column]]
        return f"{statistics.median(rounds):.1f} ({min(rounds):.1f}..{max(rounds):.1f})"
    return grid(found, cell)


def phases(found):
    """Writes where a step's time goes, in milliseconds; a row a job."""
    names = list(dict.fromkeys(name for results in found.values() for name in results[0]["phases"]))
    lines = ["| | " + " | ".join(names) + " | step |", "|---" * (len(names) + 2) + "|"]
    for (label, column), results in found.items():
        cells = [statistics.median(result["phases"].get(name, 0.0) for result in results) * 1e3 for name in names]
        lines.append(f"| {label}, {column} | " + " | ".join(f"{ms:.2f}" for ms in cells) +
                     f" | {median_ms(results):.1f} |")
    return "\n".join(lines)


def efficiency(found, label, column):
    """Returns the throughput of each rank, as a share of that of one rank that communicates with nobody."""
    return median_ms(found["local", "1 on 1"]) / median_ms(found[label, column])


def efficiencies(found):
    return grid(found, lambda label, column: f"{median_ms(found[label, column]):.1f} ms "
                                             f"({efficiency(found, label, column):.0%})")


def draw_fusion(found, path):
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(8, 5))
    _, columns = rows_of(found)
    sizes = [column for column in columns if ("hvd", column) in found]
    plot.draw(axes, {"median": [(int(size), median_ms(found["hvd", size])) for size in sizes],
                     "least of the rounds": [(int(size), min(result["seconds"] for result in found["hvd", size]) * 1e3)
                                             for size in sizes]},
              "fusion threshold", "milliseconds a step", sizes_below=True)
    axes.axvspan(4 << 20, 64 << 20, alpha=0.1, label="best in the Cambridge report: 4 to 64 MB")
    axes.legend(fontsize="small")
    plot.save(figure, path)


def finish(figure, axes, y_label, path):
    axes.set_ylabel(y_label)
    axes.set_ylim(0, 1.1)
    axes.grid(True, axis="y", alpha=0.3)
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
    plot.save(figure, path)


def draw_efficiencies(found, path):
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(9, 5))
    labels, columns = rows_of(found)
    for label in labels:
        if label != "local":
            axes.plot(columns, [efficiency(found, label, column) for column in columns], marker="o", label=label)
    axes.set_xlabel("ranks on nodes")
    finish(figure, axes, "throughput of a rank, as a share of one alone", path)


def draw_shares(found, path):
    """Draws a group of bars for each column."""
    pyplot = plot.require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(9, 5))
    labels, columns = rows_of(found)
    labels = [label for label in labels if label != "local"]
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        axes.bar([place + number * width for place in range(len(columns))],
                 [share(found, label, column) for column in columns], width, label=label)
    axes.set_xticks([place + width * (len(labels) - 1) / 2 for place in range(len(columns))], columns)
    finish(figure, axes, "throughput, as a share of the same without communication", path)


def size_columns(found):
    """Returns the results with sizes as people write them."""
    return {(label, format_size(int(column)) if column.isdigit() else column): results
            for (label, column), results in found.items()}
