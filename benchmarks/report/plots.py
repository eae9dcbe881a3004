"""Plots of the page: SVG files, byte-identical for the same results and version of Matplotlib."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.common.results import Row, middle
from benchmarks.report.tables import NAMES

SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "zeromt",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",  # readable on a dark page
}
OURS, OTHERS = "tab:blue", "tab:gray"
Draw = Callable[[Figure, Sequence[Row]], None]


def svg(draw: Draw, rows: Sequence[Row]) -> str:
    """Draw rows; returns the SVG text."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(7, 3), layout="constrained")
        draw(figure, rows)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def bars(key: str, axis: str, *, by: str = "program", target: str | None = None) -> Draw:
    """A bar for each row, with a line from the lowest to the highest round and a mark at the target."""

    def draw(figure: Figure, rows: Sequence[Row]) -> None:
        _bars(figure.subplots(), [row for row in rows if key in row], key, axis, by, target)

    return draw


def bars_side_by_side(keys: Mapping[str, str], axis: str, *, by: str = "program") -> Draw:
    """`bars` side by side: a subplot for each key, whose value is the title."""

    def draw(figure: Figure, rows: Sequence[Row]) -> None:
        axes = figure.subplots(1, len(keys), squeeze=False)[0]
        for place, (key, title) in zip(axes, keys.items(), strict=True):
            _bars(place, [row for row in rows if key in row], key, axis, by, None)
            place.set_title(title)

    return draw


def _bars(axes: Axes, rows: Sequence[Row], key: str, axis: str, by: str, target: str | None) -> None:
    names = [NAMES.get(row[by], str(row[by])) for row in rows]
    values = [middle(row[key]) for row in rows]
    is_ours = [by != "program" or str(row[by]).startswith(("zeromt", "ZeRO")) for row in rows]
    colours = [OURS if ours else OTHERS for ours in is_ours]
    axes.barh(names, values, color=colours)
    for place, row in enumerate(rows):
        if isinstance(row[key], list):
            _, low, high = row[key]
            axes.plot([low, high], [place, place], color="black", linewidth=1)
        if target and target in row:
            axes.plot([row[target]] * 2, [place - 0.4, place + 0.4], color="tab:red", linewidth=2)
    axes.invert_yaxis()
    axes.set_xlabel(axis)


def grouped(keys: Sequence[str], axis: str, *, by: str) -> Draw:
    """A group of bars for each row, with a bar for each key."""

    def draw(figure: Figure, rows: Sequence[Row]) -> None:
        axes = figure.subplots()
        width = 0.8 / len(keys)
        for number, key in enumerate(keys):
            places = [place + (number - (len(keys) - 1) / 2) * width for place in range(len(rows))]
            axes.bar(places, [middle(row[key]) for row in rows], width, label=key)
        axes.set_xticks(range(len(rows)), [str(row[by]) for row in rows])
        axes.set_ylabel(axis)
        axes.legend(loc="upper right", fontsize=8)

    return draw


def growth(figure: Figure, rows: Sequence[Row]) -> None:
    """FLOP/s relative to the base, a line for each varied quantity; ranks are only in the table."""
    axes = figure.subplots()
    for varied in dict.fromkeys(row["varied"] for row in rows if not row["varied"].startswith("ranks")):
        points = [row for row in rows if row["varied"] == varied]
        sizes = [_size(row["value"]) for row in points]
        base = next(size for size, row in zip(sizes, points, strict=True) if row["of_the_base"] == 1)
        axes.plot([size / base for size in sizes], [middle(row["of_the_base"]) for row in points], "o-", label=varied)
    axes.axhline(1, color=OTHERS, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size relative to the base")
    axes.set_ylabel("FLOP/s relative to the base")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def _size(value: Any) -> float:
    """The number in a cell such as `8000` or `3 + 3` (then the first)."""
    return float(value.split(" ")[0]) if isinstance(value, str) else middle(value)


def curves(x: str, axis: str) -> Draw:
    """BLEU over updates or seconds, a line for each row; zeromt is blue."""

    def draw(figure: Figure, rows: Sequence[Row]) -> None:
        axes = figure.subplots()
        known: set[str] = set()
        for row in rows:
            name = str(row.get("program") or row["run"])
            colour = {"zeromt": OURS, "plain loop": OTHERS}.get(name)
            axes.plot(row[x], row["bleu"], ".-", color=colour, linewidth=1, label=None if name in known else name)
            known.add(name)
        axes.set_xlabel(axis)
        axes.set_ylabel("BLEU")
        axes.legend(fontsize=8)

    return draw
