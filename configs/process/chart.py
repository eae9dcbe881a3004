"""Curves as an SVG, which every viewer of Markdown and every notebook shows. Without a library."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from configs.process.text import visible_name

Points = Sequence[tuple[float, float]]
MOST_POINTS = 300
"""Most points of a curve; of more, every n-th is drawn."""
MOST_CURVES = 6
"""Most curves of a panel: as many as there are colours."""
_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2")
_WIDTH, _HEIGHT = 320, 240
"""Of a panel, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 30, 40
_LARGEST = 1e30
"""What is larger, or no number, is left out."""
_LINE = 14
"""Height of a line of the legend."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Panel:
    """Curves with axes of their own."""

    title: str
    curves: Mapping[str, Points]
    """Positions and values by name, in order of position; one at least that is finite."""
    digits: int = 2
    """Of the last value of each curve, which the legend says."""


def svg(panels: Sequence[Panel], *, below: str) -> str:
    """Panels beside one another, on a white ground.

    Args:
        panels: those with points.
        below: the name of the horizontal axis.
    """
    height = _HEIGHT + _LINE * max(min(len(panel.curves), MOST_CURVES) for panel in panels)
    width = _WIDTH * len(panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="#444">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        lines += [f'<g transform="translate({number * _WIDTH} 0)">', *_panel(panel, height, below), "</g>"]
    return "\n".join([*lines, "</svg>\n"])


def _panel(panel: Panel, height: int, below: str) -> Iterator[str]:
    curves = {name: _thinned(points) for name, points in list(panel.curves.items())[:MOST_CURVES]}
    every = [point for points in curves.values() for point in points]
    xs = _ticks(min(0.0, *(x for x, _ in every)), max(x for x, _ in every))
    ys = _ticks(min(y for _, y in every), max(y for _, y in every))
    top, bottom = _TOP + _LINE * len(curves), height - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        right = (x - xs[0]) / (xs[-1] - xs[0]) * (_WIDTH - _LEFT - _RIGHT)
        return _LEFT + right, bottom - (y - ys[0]) / (ys[-1] - ys[0]) * (bottom - top)

    yield f'<text x="{_LEFT}" y="18" font-weight="600" fill="#111">{escape(visible_name(panel.title))}</text>'
    for y in ys:
        _, at = place(0, y)
        yield f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>'
    for x in xs[:-1] if len(xs) > 4 else xs:
        at, _ = place(x, 0)
        yield f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{_short(x)}</text>'
    yield f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{bottom + 31}" text-anchor="middle">{escape(below)}</text>'
    for number, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        colour, line = _COLOURS[number], _TOP + _LINE * number
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
        if len(points) < 30:
            spots = (place(*point) for point in points)
            yield "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in spots)
        yield f'<path d="M{_LEFT} {line}h16" stroke="{colour}" stroke-width="3"/>'
        said = f"{visible_name(name)}: {points[-1][1]:.{panel.digits}f}"
        yield f'<text x="{_LEFT + 22}" y="{line + 4}">{escape(said)}</text>'


def _thinned(points: Points) -> Points:
    known = [(x, y) for x, y in points if abs(x) < _LARGEST and abs(y) < _LARGEST]
    return [*known[: -1 : max(1, -(-len(known) // MOST_POINTS))], *known[-1:]]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, the first at or below `low`, the last at or above `high`: two to seven."""
    span = high - low if high - low > 1e-9 else max(abs(high), 1.0)
    magnitude = 10 ** math.floor(math.log10(span / 4))
    step = next(f * magnitude for f in (1, 2, 2.5, 5, 10) if span / (f * magnitude) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]


def _short(x: float) -> str:
    return f"{x / 1e6:g}M" if abs(x) >= 1e6 else f"{x / 1e3:g}k" if abs(x) >= 1e4 else f"{x:g}"
