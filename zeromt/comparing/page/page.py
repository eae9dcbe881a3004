"""The page of a comparison: one self-contained file in which all text is escaped."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from configs.process.document import are_numbers
from configs.process.text import visible, visible_name
from trainer.runs.course import TRAINING
from zeromt.comparing.comparison import Comparison
from zeromt.comparing.curves import AXES, Figure
from zeromt.comparing.sentences import METRIC
from zeromt.comparing.tables import to_parts

_SCRIPTS = ("uPlot.iife.min.js", "page.js")
_STYLES = ("uPlot.min.css", "page.css")


def to_html(comparison: Comparison) -> str:
    """The page. Its content security policy lets a browser run the scripts in it and fetch nothing.

    Args:
        comparison: the comparison, or the report of one run.
    """
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"visible": visible, "visible_name": visible_name}
    environment.tests["numbers"] = are_numbers
    scripts = [_read(name) for name in _SCRIPTS]
    labels = [visible_name(run.label) for run in comparison.runs]
    return environment.from_string(_read("page.html")).render(
        title=f"{'Report of' if len(labels) == 1 else 'Comparison of'} {', '.join(labels)}",
        policy=_policy(scripts),
        styles=[Markup(_read(name)) for name in _STYLES],
        scripts=[Markup(text) for text in scripts],
        labels=labels,
        notes=comparison.notes,
        parts=to_parts(comparison),
        sets=comparison.sets,
        metric=METRIC,
        axes=AXES,
        charts=_charts(comparison.figures),
        data={"labels": labels, "axes": AXES, "charts": _charts(comparison.figures)},
    )


def _charts(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """A chart for each figure, in which the reader chooses among its sets and language pairs."""
    charts: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        name, _, part = (figure.key, "", "") if figure.key == TRAINING else figure.key.partition("/")
        curves = [
            {"axes": [_short(curve.axes[axis]) for axis in AXES], "values": _short(curve.values)}
            for curve in figure.curves
        ]
        label = visible_name(figure.label)
        charts.setdefault(name, []).append(
            {"label": label, "part": visible_name(part) or "all", "digits": figure.digits, "curves": curves}
        )
    return [{"label": variants[0]["label"], "variants": variants} for variants in charts.values()]


def _short(numbers: Sequence[float | None]) -> list[float | None]:
    """Rounded to what a plot can show: with many curves their numbers are most of the page."""
    return [None if x is None else int(x) if x == int(x) else float(f"{x:.6g}") for x in numbers]


def _policy(scripts: Sequence[str]) -> str:
    """The page's Content-Security-Policy."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")
