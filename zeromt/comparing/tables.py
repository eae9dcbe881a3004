"""A comparison as tables of text, which the terminal, Markdown and the page all show."""

from collections.abc import Iterator, Sequence

from configs.process.document import Part, Table, plain
from trainer.runs.course import cost_table
from zeromt.comparing.breakdown import Breakdown
from zeromt.comparing.comparison import Comparison, OfSet, Run
from zeromt.comparing.curves import in_common
from zeromt.evaluating.resampling import MetricScores, RunScore

SIGNIFICANT = 0.05
"""sacreBLEU's own threshold."""
FEW = 50
"""Below so many sentences the bootstrap's intervals hold the true score less often than they say."""


def to_parts(comparison: Comparison) -> list[Part]:
    """The tables, part by part; a part without tables is omitted."""
    parts = [
        Part(title="Runs", key="runs", tables=[_runs(comparison.runs)]),
        Part(title="Scores", key="scores", tables=[*_scores(comparison), *_language_pairs(comparison)]),
        Part(title="By length and frequency", key="groups", tables=[*_groups(comparison)]),
        Part(title="Curves", key="curves", tables=[*_best(comparison), *_common(comparison)]),
        Part(title="Cost", key="cost", tables=[cost_table({run.label: run.cost for run in comparison.runs})]),
        Part(title="Configuration and data", key="fields", tables=[*_fields(comparison)]),
    ]
    return [part for part in parts if part.tables]


def _labels(comparison: Comparison) -> list[str]:
    return [run.label for run in comparison.runs]


def _runs(runs: Sequence[Run]) -> Table:
    rows = [
        [
            run.label,
            "none" if run.step is None else f"{run.step:,}",
            run.checkpoint[:12] if run.checkpoint else "-",
            run.cost.state or "unknown",
            run.cost.reason or "-",
        ]
        for run in runs
    ]
    notes = [f"{run.label} is {run.path}" for run in runs if run.label != run.path]
    notes += [f"{run.label} was begun from {run.parent}" for run in runs if run.parent is not None]
    return Table(
        title="",
        head=["run", "checkpoint step", "checkpoint hash", "state", "why it ended"],
        rows=rows,
        notes=notes,
    )


def _scores(comparison: Comparison) -> Iterator[Table]:
    labels = _labels(comparison)
    several = len(labels) > 1
    for one in comparison.sets:
        head = ["metric", "run", "score", "mean ± 95 %"] + (["difference ± 95 %", "p"] if several else [])
        rows = [row for metric in one.scores for row in _rows_of(metric, labels, several=several)]
        notes = [f"{metric.label}: {metric.signature}{_of_samples(metric, comparison)}" for metric in one.scores]
        if any(metric.is_tested for metric in one.scores):
            notes += _about_chance(comparison, labels[0], one.pairs)
        notes += [f"{run}: {file}" for run, file in zip(labels, one.files, strict=True) if file is not None]
        references = f", {one.references} references" if one.references > 1 else ""
        title = f"{one.name} ({one.role}, {one.languages}, {one.pairs:,} sentences{references})"
        yield Table(title=title, head=head, rows=rows, notes=notes)


def _about_chance(comparison: Comparison, first: str, pairs: int) -> Iterator[str]:
    if len(comparison.runs) > 1 and comparison.samples.randomisation:
        yield (
            f"p: how probable so large a difference from {first} is by chance, by sacreBLEU's approximate "
            f"randomisation; * marks p < {SIGNIFICANT}"
        )
    if comparison.samples.bootstrap > 1 and pairs < FEW:
        yield f"of {pairs} sentences, fewer than {FEW}, intervals are too narrow: about 90 % hold the true score"


def _of_samples(metric: MetricScores, comparison: Comparison) -> str:
    if not metric.is_tested:
        return ""
    numbers = {
        "bs": comparison.samples.bootstrap,
        "ar": comparison.samples.randomisation if len(comparison.runs) > 1 else 0,
    }
    return "".join(f"|{name}:{number}" for name, number in numbers.items() if number)


def _rows_of(metric: MetricScores, labels: Sequence[str], *, several: bool) -> Iterator[list[str]]:
    for place, (label, run) in enumerate(zip(labels, metric.runs, strict=True)):
        row = [metric.label, label, plain(run.score, metric.digits), _interval(run.mean, run.interval, metric.digits)]
        if several:
            difference = _interval(run.difference, run.difference_interval, metric.digits, "+")
            row += ["baseline" if place == 0 else difference, _p(run.randomisation_p, run)]
        yield row


def _interval(value: float | None, half: float | None, digits: int, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:{sign}.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def _p(value: float | None, run: RunScore) -> str:
    if value is None:
        return "-"
    if run.is_equal:
        return f"{value:.4f} (equal)"
    return f"{value:.4f}{'*' if value < SIGNIFICANT else ''}"


def _language_pairs(comparison: Comparison) -> Iterator[Table]:
    rows = [
        [pair, label, *(plain(value, digits) for value in values)]
        for pair, metrics in comparison.language_pairs.items()
        for label, digits, values in metrics
    ]
    if rows:
        yield Table(
            title="By pair of languages", head=["pair", "metric", *_labels(comparison)], rows=rows,
            notes=["means over the sets of each pair"],
        )  # fmt: skip


def _groups(comparison: Comparison) -> Iterator[Table]:
    for one in comparison.sets:
        for by in one.breakdowns:
            yield _breakdown(one, by, _labels(comparison))


def _breakdown(one: OfSet, by: Breakdown, labels: Sequence[str]) -> Table:
    def shown(run: RunScore) -> str:
        interval = "" if run.interval is None else f" ± {run.interval:.{by.digits}f}"
        return f"{plain(run.score, by.digits)}{interval}"

    return Table(
        title=f"{one.name}: {by.metric} by {by.of}",
        head=[by.head, "words" if by.metric.startswith("F1") else "sentences", *labels],
        rows=[[group.name, f"{group.size:,}", *map(shown, group.runs)] for group in by.groups],
    )


def _best(comparison: Comparison) -> Iterator[Table]:
    rows = []
    for figure in comparison.figures:
        if figure.higher_is_better is None or not figure.is_compared:
            continue
        for label, curve in zip(_labels(comparison), figure.curves, strict=True):
            if not curve.values:
                continue
            pick = max if figure.higher_is_better else min
            best = pick(range(curve.begins, len(curve.values)), key=curve.values.__getitem__)
            at = [curve.axes[axis][best] for axis in ("updates", "target tokens", "hours")]
            rows.append(
                [figure.label, label, plain(curve.values[-1], figure.digits), plain(curve.values[best], figure.digits)]
                + [plain(x, 0 if n < 2 else 3) for n, x in enumerate(at)]
            )
    if rows:
        head = ["figure", "run", "last", "best", "at updates", "target tokens", "hours"]
        yield Table(title="Last and best", head=head, rows=rows)


def _common(comparison: Comparison) -> Iterator[Table]:
    if len(comparison.runs) < 2:
        return
    rows = [
        [figure.label, f"{plain(one.at, 3 if one.axis == 'hours' else 0)} {one.axis}"]
        + [plain(value, figure.digits) for value in one.values]
        for figure in comparison.figures
        if figure.is_compared
        for one in in_common(figure)
    ]
    if rows:
        yield Table(
            title="At the same updates, target tokens and time", head=["figure", "at", *_labels(comparison)], rows=rows,
            notes=["at the farthest point that all runs have reached; interpolated linearly between evaluations"],
        )  # fmt: skip


def _fields(comparison: Comparison) -> Iterator[Table]:
    several = len(comparison.runs) > 1
    titles = {
        "configuration": "Fields with another value" if several else "Fields that are not the default",
        "data": "Data, tokenizer and versions that differ" if several else "Data, tokenizer and versions",
    }
    for name, rows in (("configuration", comparison.configuration), ("data", comparison.data)):
        if rows:
            yield Table(
                title=titles[name],
                head=["field", *_labels(comparison)],
                rows=[[field_, *values] for field_, values in rows.items()],
            )
        elif several:
            yield Table(title=titles[name], head=[], rows=[], notes=["none"])
