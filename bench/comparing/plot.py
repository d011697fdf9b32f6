"""Draws curves as SVG, by matplotlib."""

from pathlib import Path

from .processes import CompareError
from .work import format_size


def require_matplotlib():
    try:
        import matplotlib
    except ImportError as error:
        raise CompareError("--svg needs python3-matplotlib: deploy/packages.sh bench") from error
    matplotlib.use("svg")
    # With this the same numbers give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "rueda"
    from matplotlib import pyplot
    return pyplot


def draw(axes, curves, x_label, y_label, sizes_below=False):
    """Draws `curves`, which is {label: [(x, y or None)]}; both axes are logarithmic."""
    for label, points in curves.items():
        points = [(x, y) for x, y in points if y is not None and x > 0]
        if points:
            axes.plot(*zip(*points), marker="o", markersize=3, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    ticks = sorted({x for points in curves.values() for x, _ in points if x > 0})
    axes.set_xticks(ticks, [format_size(x) if sizes_below else str(x) for x in ticks], rotation=45,
                    fontsize="small")
    axes.minorticks_off()


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    # matplotlib ends lines with blanks.
    lines = [line.rstrip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def busbw_svg(report, path):
    """Draws bus bandwidth over size, with a curve a side."""
    pyplot = require_matplotlib()
    rows = report["rows"]
    curves = {
        name: [(row["bytes"], (row["sides"][name]["busbw_GBps"] or {}).get("median")) for row in rows]
        for name in rows[0]["sides"] if name != "floor"}
    figure, axes = pyplot.subplots(figsize=(8, 5))
    draw(axes, curves, "bytes of a rank's buffer", "bus bandwidth, GB/s", sizes_below=True)
    setup = report["setup"]
    axes.set_title(f"{setup['np']} ranks on {setup['nodes']} nodes, {setup['network']}, {setup['congestion']}",
                   fontsize="medium")
    save(figure, path)
    pyplot.close(figure)
