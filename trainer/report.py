"""`report.md` in a run's folder: settings, scores, curves and some translations, from the run's files alone.

Its tables of Markdown are those of model cards too.
"""

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from configs import RunConfig, UserError, load_saved
from configs.components.training import SIGNATURE
from configs.process.files import is_file
from configs.process.files.inside import read_text, write_text
from configs.process.text import markdown, visible_name
from trainer.evaluation.scores import OF_REFERENCES, Described, described
from trainer.evaluation.sets import all_sets
from trainer.limits import interval
from trainer.records.names import TARGET_TOKENS
from trainer.runs.layout import CONFIG, CURVES, LEDGER_FILE, METRICS_FILE, REPORT, STATUS_FILE, hypotheses_file
from trainer.runs.ledger import read_ledger
from trainer.runs.metrics_file import Line, number, read_lines, whole
from trainer.runs.status import Status, read_status
from trainer.terminal import describe_model, describe_phases, describe_schedule, describe_update

NUM_SAMPLES = 5
"""Translations of each set."""
MOST_METRICS = 2
"""Metrics that are drawn."""
MOST_POINTS = 600
"""Fewer points than these are kept of the training loss; of more, every n-th."""
_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2")
"""Of curves; a panel has no more."""
_WIDTH, _TOP, _BOTTOM, _LEFT, _RIGHT = 320, 120, 280, 54, 306
"""Of a panel in pixels, and where its curves are."""
_LARGEST = 1e30
"""What is larger, or no number, is not drawn."""
_FIGURE = re.compile(r"-|[+-]?\d[\d.,]*[%*]?")


class Code(str):
    """Text of a cell that is shown as code."""

    __slots__ = ()


@dataclass(kw_only=True, slots=True, frozen=True)
class Table:
    """Rows of cells below a title."""

    title: str = ""
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Lines below it."""


def table_lines(table: Table) -> Iterator[str]:
    """A table in GitHub's Markdown, in which text is text; columns of figures are aligned to the right."""
    if table.title:
        yield from (f"### {_cell(table.title)}", "")
    if table.head:
        figures = [all(_is_figure(row[column]) for row in table.rows) for column in range(1, len(table.head))]
        yield _row(map(_cell, table.head))
        yield _row(["---", *("--:" if is_figure else "---" for is_figure in figures)])
        yield from (_row(map(_cell, row)) for row in table.rows)
        yield ""
    if table.notes:
        yield from (f"- {_cell(note)}" for note in table.notes)
        yield ""


def _is_figure(cell: str) -> bool:
    return _FIGURE.fullmatch(cell) is not None


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: str) -> str:
    shown = markdown(visible_name(cell))
    return f"<code>{shown}</code>" if isinstance(cell, Code) and cell else shown  # viewers differ on backticks


def plain(value: float | None, digits: int) -> str:
    """A figure formatted for reading; a dash if there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


@dataclass(kw_only=True, slots=True, frozen=True)
class Panel:
    """Curves with axes of their own."""

    title: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """Updates and values by name, in order; one at least that is finite."""
    digits: int = 2
    """Of the last value of each curve, which the legend says."""


def svg(panels: Sequence[Panel]) -> str:
    """Panels next to one another, on a white ground, as every viewer of Markdown shows them."""
    size = f'width="{_WIDTH * len(panels)}" height="{_BOTTOM + 40}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="#444">']
    lines.append(f'<rect {size} fill="#fff"/>')
    for place, panel in enumerate(panels):
        lines += [f'<g transform="translate({place * _WIDTH} 0)">', *_drawn(panel), "</g>"]
    return "\n".join([*lines, "</svg>\n"])


def _drawn(panel: Panel) -> Iterator[str]:
    curves = {name: [(x, y) for x, y in points if abs(y) < _LARGEST] for name, points in panel.curves.items()}
    every = [point for points in curves.values() for point in points]
    last = max(1.0, *(x for x, _ in every))
    low, high = min(y for _, y in every), max(y for _, y in every)
    yield f'<text x="{_LEFT}" y="18" font-weight="600" fill="#111">{escape(visible_name(panel.title))}</text>'
    for y, at in ((low, _BOTTOM), (high, _TOP)):
        yield f'<path d="M{_LEFT} {at}H{_RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{y:.4g}</text>'
    yield f'<text x="{_RIGHT}" y="{_BOTTOM + 20}" text-anchor="end">update {last:,.0f}</text>'
    for line, ((name, points), colour) in enumerate(zip(curves.items(), _COLOURS, strict=False)):
        places = []
        for x, y in points:
            up = (y - low) / (high - low or 1)
            places.append(f"{_LEFT + x / last * (_RIGHT - _LEFT):.1f},{_BOTTOM - up * (_BOTTOM - _TOP):.1f}")
        yield f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        newest = f"{points[-1][1]:.{panel.digits}f}" if points else "-"
        said = escape(f"{visible_name(name)}: {newest}")
        yield f'<text x="{_LEFT}" y="{36 + 14 * line}" fill="{colour}">{said}</text>'


@dataclass(kw_only=True, slots=True)
class Course:
    """What a run has logged."""

    trained: Line = field(default_factory=dict)
    """The newest line of training."""
    losses: list[tuple[int, float]] = field(default_factory=list)
    """Updates and training losses without label smoothing; of a long run every n-th."""
    evaluations: dict[int, Line] = field(default_factory=dict)
    """By update, with scores that came late."""

    def newest(self) -> list[Line]:
        """The evaluations of the newest series of scores, which can be compared, in their order."""
        lines = [self.evaluations[step] for step in sorted(self.evaluations)]
        return [line for line in lines if line.get("series") == lines[-1].get("series")]


def read_course(folder: Path) -> Course:
    """What the run in a folder has logged, in one pass.

    Raises:
        OSError: metrics.jsonl is there and cannot be read.
    """
    course, every, seen = Course(), 1, 0
    for line in read_lines(folder / METRICS_FILE):
        step, kind = whole(line.get("step")), line.get("kind")
        if step is not None and kind == "train":
            course.trained = line
            if seen % every == 0:
                course.losses.append((step, number(line, "nll")))
            seen += 1
            if len(course.losses) == MOST_POINTS:
                del course.losses[1::2]
                every *= 2
        elif step is not None and kind in ("evaluation", "score"):
            known = course.evaluations.get(step, {}) if kind == "score" else {}
            course.evaluations[step] = {**line, **known}
    return course


def scores(evaluation: Line) -> Iterator[tuple[str, float, Code]]:
    """The scores and losses of an evaluation, its sets and language pairs, with sacreBLEU's signatures."""
    for name in [*(key for key in evaluation if f"{key}{SIGNATURE}" in evaluation), *OF_REFERENCES]:
        for key in evaluation:
            if (key == name or key.startswith(f"{name}/")) and math.isfinite(value := number(evaluation, key)):
                yield key, value, Code(str(evaluation.get(f"{name}{SIGNATURE}", "")))


def write(folder: Path) -> Path:
    """Write the report of a run and its curves; returns the report.

    Args:
        folder: of the run, which may still be training.

    Raises:
        UserError: its configuration or its figures cannot be read.
        OSError: they cannot be read, or the report cannot be written.
    """
    config = load_saved(folder / CONFIG, any_version=True)
    formats = described(config.evaluation)
    course, status = read_course(folder), read_status(folder / STATUS_FILE) or Status(state="no status")
    panels, evaluations = list(_panels(course, formats)), course.newest()
    reason = status.error or status.stop_reason
    said = f"{status.state}{f' ({reason})' if reason else ''}. Written {time.strftime('%Y-%m-%d %H:%M %Z')}."
    lines = [f"# {_cell(f'Run {config.name}')}", "", f"> {_cell(said)}", "", "## Settings", ""]
    lines += table_lines(Table(head=("", ""), rows=list(_settings(config, course, folder))))
    if evaluations:
        lines += ["## Scores", "", *table_lines(_scores(evaluations, formats))]
    if panels:
        write_text(folder / CURVES, svg(panels))
        lines += ["## Curves", "", f"![{_cell(', '.join(panel.title for panel in panels))}]({CURVES})", ""]
    if translations := list(_translations(config, folder, evaluations[-1:])):
        lines += ["## Translations", ""]
    for table in translations:
        lines += table_lines(table)
    write_text(folder / REPORT, "\n".join(lines))
    return folder / REPORT


def _settings(config: RunConfig, course: Course, folder: Path) -> Iterator[Sequence[str]]:
    ledger = read_ledger(folder / LEDGER_FILE)
    yield "model", describe_model(config)
    yield "data", Code(", ".join(source.path for source in config.datasets))
    yield "an update", describe_update(config)
    yield "schedule", describe_schedule(config.schedule, config)
    if config.phases:
        yield "phases", "; ".join(describe_phases(config))
    if course.trained:
        tokens = number(course.trained, TARGET_TOKENS)
        yield "trained", f"{course.trained['step']:,} updates, {tokens:,.0f} target tokens"
    if ledger:
        yield "time", f"{interval(ledger['wall_seconds'])}, {ledger['goodput']:.1%} on updates that count"


def _scores(evaluations: Sequence[Line], formats: Mapping[str, Described]) -> Table:
    """Each score of the newest evaluation, and the best of the series."""
    rows = []
    for key, value, signature in scores(evaluations[-1]):
        known = formats.get(key.partition("/")[0], Described(label=key))
        sign = -1 if known.higher_is_better is False else 1
        points = [(sign * number(line, key), -line["step"]) for line in evaluations]
        best, at = max(point for point in points if math.isfinite(point[0]))
        of_all = "" if known.higher_is_better is None else f"{sign * best:.4g} at {-at:,}"
        rows.append((key, f"{value:.4g}", of_all, signature))
    return Table(head=("figure", f"at update {evaluations[-1]['step']:,}", "best", "signature"), rows=rows)


def _panels(course: Course, formats: Mapping[str, Described]) -> Iterator[Panel]:
    """The losses, and the first metrics: the mean, and each set."""
    validation = [(step, number(line, "nll")) for step, line in course.evaluations.items()]
    losses = {"training": course.losses, "validation": validation}
    if curves := {name: points for name, points in losses.items() if any(math.isfinite(y) for _, y in points)}:
        yield Panel(title="loss without smoothing, nats a token", curves=curves, digits=3)
    evaluations = course.newest()
    keys = [key for line in evaluations[-1:] for key, _, _ in scores(line)]
    for name in [key for key in keys if key in formats and key not in OF_REFERENCES][:MOST_METRICS]:
        of_sets = [key for key in keys if key.partition("/")[0] == name]
        curves = {key: [(line["step"], number(line, key)) for line in evaluations] for key in of_sets}
        yield Panel(title=formats[name].label, curves=curves, digits=formats[name].digits)


def _translations(config: RunConfig, folder: Path, evaluations: Sequence[Line]) -> Iterator[Table]:
    """Of each set that an evaluation has translated some lines, at even distances."""
    try:
        if any("://" in source.path for source in config.datasets):
            raise UserError("data on a server are not fetched for this")
        texts = all_sets(config)
    except (UserError, OSError) as error:
        yield Table(head=(), rows=(), notes=[f"Held-out sets are not at hand: {error}"])
        return
    for text in texts:
        names = (text.name, None) if text.role == "validation" else (text.name,)
        files = (hypotheses_file(folder, line["step"], name) for line in evaluations for name in names)
        if (path := next(filter(is_file, files), None)) is None:
            continue
        lines = read_text(path, errors="replace").split("\n")[:-1]
        pairs = list(zip(text.sources, text.references[0], lines, strict=False))
        chosen = sorted({len(pairs) * (2 * n + 1) // (2 * NUM_SAMPLES) for n in range(NUM_SAMPLES)})[: len(pairs)]
        head, rows = ("source", "reference", "translation"), [pairs[n] for n in chosen]
        yield Table(title=f"{text.name} ({text.role})", head=head, rows=rows)
