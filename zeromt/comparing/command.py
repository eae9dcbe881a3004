"""`zeromt compare`: runs beside one another, as one table or as JSON."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.environment import restored_environment
from configs.process.text import to_json, visible_name
from trainer.evaluation.sets import SetText
from trainer.inference.loading import find_checkpoint, while_they_last
from trainer.ranks.process import tune_process
from trainer.report import plain
from trainer.runs.parents import hash_of
from zeromt.comparing.cost import Cost, cost_table, read_cost
from zeromt.comparing.hypotheses import How, translations
from zeromt.comparing.sets import Subject, shared_sets, subjects_of, untagged
from zeromt.comparing.significance import MetricScores, RunScore, Samples, score_runs
from zeromt.evaluating.command import parse_set
from zeromt.evaluating.scoring import Wanted
from zeromt.evaluating.translation_cache import Hypotheses

SIGNIFICANT = 0.05
"""sacreBLEU's own threshold."""
FEW = 50
"""Below so many sentences the bootstrap's intervals hold the true score less often than they say."""
ELSEWHERE = ("name", "output")
"""Fields that only say where a run is."""
MOST_CHARACTERS = 300
"""Characters shown of a cell."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Run:
    """A run, as it is displayed."""

    label: str
    path: str
    step: int
    checkpoint: str | None
    """SHA-256 of its manifest."""
    cost: Cost


@dataclass(kw_only=True, slots=True, frozen=True)
class OfSet:
    """The results of one set."""

    name: str
    languages: str
    role: str
    pairs: int
    references: int
    files: Sequence[str | None]
    """Files with the translations of every run; None if they could not be kept."""
    scores: Sequence[MetricScores]


@dataclass(kw_only=True, slots=True, frozen=True)
class Comparison:
    """All that is printed."""

    runs: Sequence[Run]
    sets: Sequence[OfSet]
    fields: Mapping[str, Sequence[str]]
    """Configuration fields, fingerprints of data and versions that differ: the value of each run."""
    samples: Samples
    notes: Sequence[str]


@restored_environment()
def compare_runs(
    *,
    runs: Sequence[str],
    sets: Sequence[str] | None,
    metrics: list[str] | None,
    lowercase: bool,
    tokenizer: str | None,
    raw_weights: bool,
    precision: str | None,
    search: Mapping[str, Any],
    bootstrap: int,
    randomisation: int,
    as_json: bool,
) -> int:
    """Compare runs on the sets that all have; a run that deletes its checkpoint meanwhile is read again.

    Args:
        runs: folders of runs, or checkpoints; each further one is tested against the first.
        sets: names of the runs' sets, or others as items of `evaluation.sets`, in YAML; None: the sets all runs have.
        metrics: written as items of `evaluation.metrics`, in YAML; None: those of the first run.
        lowercase, tokenizer: ignore case, in metrics that can; sacreBLEU's tokenizer, of BLEU.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: see `zeromt translate`.
        search: fields of the runs' search sections to replace.
        bootstrap, randomisation: samples to draw; 0 turns the test off.
        as_json: print JSON.

    Raises:
        UserError: a path is no run, a set cannot be read or is not there, or a metric cannot be computed.
    """
    wanted = Wanted.of(metrics, tokenizer, lowercase=lowercase)
    if wanted.commands:
        raise UserError(f"--metrics: {wanted.commands[0].name} is a command; allowed are such as bleu, chrf, ter")
    named = [parse_set(text) for text in sets or ()]
    how = How(search=search, raw=raw_weights, precision=precision)
    samples = Samples(bootstrap=bootstrap, randomisation=randomisation)
    tune_process()

    def compare(subjects: Sequence[Subject]) -> Comparison:
        shared, left = shared_sets(subjects, named)
        notes = [] if shared else ["nothing is scored: there is no set that every run has; --set names one"]
        if left:
            notes.append(f"not every run has {', '.join(left)}; --set {left[0]} has all of them translate it")
        made = [translations(one, [texts[n] for texts in shared], how) for n, one in enumerate(subjects)]
        return Comparison(
            runs=[_run(subject) for subject in subjects],
            sets=[
                _of_set(texts[0], [of_run[number] for of_run in made], subjects[0], wanted, samples)
                for number, texts in enumerate(shared)
            ],
            fields=differing([_fields(subject) for subject in subjects]),
            samples=samples,
            notes=notes,
        )

    comparison = while_they_last(
        lambda: [find_checkpoint(Path(run)) for run in runs], lambda whole: compare(subjects_of(runs, whole))
    )
    text = to_json(dataclasses.asdict(comparison), indent=1) if as_json else "\n".join(to_lines(comparison))
    print(text, flush=True)
    return 0


def _run(subject: Subject) -> Run:
    manifest = subject.checkpoint.manifest
    return Run(
        label=subject.label,
        path=subject.path,
        step=int(manifest["step"]),
        checkpoint=hash_of(subject.checkpoint.folder),
        cost=read_cost(subject.folder),
    )


def _of_set(text: SetText, hypotheses: Sequence[Hypotheses], first: Subject, wanted: Wanted, samples: Samples) -> OfSet:
    scorer = wanted.scorer(first.config.evaluation, text)
    lines = [one.lines for one in hypotheses]
    return OfSet(
        name=text.name,
        languages="-".join(text.languages),
        role=text.role,
        pairs=len(text.sources),
        references=len(text.references),
        files=[None if one.file is None else str(one.file) for one in hypotheses],
        scores=score_runs(scorer, [untagged(line) for line in text.sources], text.references, lines, samples),
    )


def _fields(subject: Subject) -> dict[str, Any]:
    config = {k: v for k, v in dataclasses.asdict(subject.config).items() if k not in ELSEWHERE}
    manifest = subject.checkpoint.manifest
    return {**config, "fingerprint of": manifest["fingerprints"], "version of": manifest["versions"]}


def differing(trees: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The leaves that are not the same in all trees, by their paths; a dash where a tree has none."""
    flat = [dict(_flat(tree, "")) for tree in trees]
    keys = dict.fromkeys(key for leaves in flat for key in leaves)
    rows = {key: [leaves.get(key, "-") for leaves in flat] for key in keys}
    return {key: row for key, row in rows.items() if len(set(row)) > 1}


def _flat(tree: Any, where: str) -> Iterator[tuple[str, str]]:
    """The leaves of a tree by their paths; a list without trees in it is a leaf."""
    if isinstance(tree, list) and any(isinstance(one, dict) for one in tree):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        yield where, str(tree)
        return
    for key, value in tree.items():
        yield from _flat(value, f"{where}.{key}" if where else str(key))


def to_lines(comparison: Comparison) -> Iterator[str]:
    """The table, a column a run, and notes below it."""
    labels = [run.label for run in comparison.runs]
    cost = cost_table({run.label: run.cost for run in comparison.runs})
    rows = [["", *labels], ["checkpoint", *(f"step {run.step:,}" for run in comparison.runs)]]
    rows += [row for one in comparison.sets for metric in one.scores for row in _scores(one.name, metric)]
    rows += [[field, *values] for field, values in comparison.fields.items()]
    rows += [["state", *(run.cost.state or "-" for run in comparison.runs)], *([*map(str, row)] for row in cost.rows)]
    cells = [[visible_name(cell)[:MOST_CHARACTERS] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    yield from (visible_name(note) for note in (*comparison.notes, *_about_scores(comparison), *cost.notes))


def _scores(name: str, metric: MetricScores) -> Iterator[list[str]]:
    yield [f"{name} {metric.label}", *(_interval(run.score, run.interval, metric.digits) for run in metric.runs)]
    if any(run.difference is not None for run in metric.runs):
        runs = [(run.difference, run.difference_interval) for run in metric.runs]
        yield ["  difference", *(_interval(value, half, metric.digits, "+") for value, half in runs)]
    if any(run.p is not None for run in metric.runs):
        yield ["  p", *map(_p, metric.runs)]


def _interval(value: float | None, half: float | None, digits: int, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:{sign}.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def _p(run: RunScore) -> str:
    mark = " (equal)" if run.is_equal else "*" if run.p is not None and run.p < SIGNIFICANT else ""
    return plain(run.p, 4) + mark


def _about_scores(comparison: Comparison) -> Iterator[str]:
    for one in comparison.sets:
        yield f"{one.name}: {one.role}, {one.languages}, {one.pairs:,} sentences, references: {one.references}"
        yield from (f"{one.name} {metric.label}: {metric.signature}" for metric in one.scores)
        if comparison.samples.bootstrap > 1 and one.pairs < FEW:
            yield f"{one.name}: of fewer than {FEW} sentences intervals are too narrow: about 90 % hold the true score"
    if any(run.p is not None for one in comparison.sets for metric in one.scores for run in metric.runs):
        first = comparison.runs[0].label
        yield f"±: 95 % intervals; p: the probability of such a difference from {first} by chance; *: p < {SIGNIFICANT}"
