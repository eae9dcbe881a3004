"""`report.md` in a run's folder: what it was trained on, what came of it, what it cost, and how to make it again.

Made from the run's files alone, after the end of training or at any time (`zeromt report RUN`).
"""

import contextlib
import hashlib
import math
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_saved
from configs.components import ScoredText
from configs.components.training import OF_REFERENCES, SIGNATURE, metric_keys
from configs.process.chart import Panel, svg
from configs.process.document import Cell, Code, Part, Table, plain, to_markdown
from configs.process.files import is_file
from configs.process.files.inside import read_json, read_text, write_text
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tables import dataset_tables
from trainer.checkpoint.format import Checkpoint, read_checkpoint
from trainer.datasets import dataset_names, tokenizer_of
from trainer.evaluation.sets import SetText, all_sets
from trainer.metrics.scoring import Scorer
from trainer.records.marked_text import marked
from trainer.runs.course import TRAINING, Cost, Course, cost_table, read_cost, read_course
from trainer.runs.identity import source_commit
from trainer.runs.layout import CONFIG, CURVES, EVALUATIONS, REPORT, checkpoint_folder, hypotheses_file, newest_step
from trainer.runs.ledger import read_figures
from trainer.runs.metrics_file import Shown, number, read_shown
from trainer.runs.parents import parent_of_run
from trainer.terminal.forecast import interval
from trainer.terminal.tables import describe_model, describe_phases, describe_schedule

NUM_SAMPLES = 5
"""Translations of each set."""
MOST_METRICS = 2
"""Metrics that are drawn."""
AT_ONCE = ("bleu", "chrf", "ter")
"""Kinds of metrics that need no program and no model."""


@dataclass(kw_only=True, slots=True)
class _Run:
    """What the folder of a run has."""

    folder: Path
    config: RunConfig
    course: Course
    cost: Cost
    shown: Shown
    checkpoint: Checkpoint | None
    """The newest; None if there is none."""
    datasets: Sequence[Dataset]
    texts: Sequence[SetText]
    """Its held-out sets."""
    notes: Sequence[str]
    """What is not at hand."""


def write(folder: Path) -> Path:
    """Write the report of a run and its curves; returns the report.

    Args:
        folder: of the run, which may still be training.

    Raises:
        UserError: its configuration or its figures cannot be read.
        OSError: they cannot be read, or the report cannot be written.
    """
    run = _read(folder)
    panels = list(_panels(run))
    if panels:
        write_text(folder / CURVES, svg(panels, below="updates"))
    parts = [
        Part(title="Scores", tables=list(_scores(run))),
        Part(title="Curves", picture=(CURVES, ", ".join(panel.title for panel in panels)) if panels else None),
        Part(title="Translations", tables=list(_translations(run))),
        Part(title="Data", tables=list(_data(run))),
        Part(title="Model and training", tables=[_facts(run)]),
        Part(title="Cost", tables=[cost_table({folder.name: run.cost})]),
        Part(title="To make it again", listing=("sh", "\n".join(_commands(run))), tables=[_versions(run)]),
    ]
    write_text(folder / REPORT, to_markdown(f"Run {run.config.name}", parts, notes=[_end(run.cost), *run.notes]))
    return folder / REPORT


def _read(folder: Path) -> _Run:
    config = load_saved(folder / CONFIG, any_version=True)
    checkpoint = None
    with contextlib.suppress(UserError):
        checkpoint = read_checkpoint(checkpoint_folder(folder, newest_step(folder)))
    datasets: list[Dataset] = []
    texts: list[SetText] = []
    notes = []
    remote = [source.path for source in config.datasets if "://" in source.path]
    try:
        if remote:
            raise UserError(f"{', '.join(remote)}: not fetched for this")
        datasets = [Dataset.load(source.path) for source in config.datasets]
        texts = all_sets(config, tokenizer_of(datasets) if datasets else None)
    except (UserError, OSError) as error:
        notes.append(f"Data and held-out sets are not at hand: {error}")
    return _Run(
        folder=folder,
        config=config,
        course=read_course(folder),
        cost=read_cost(folder),
        shown=read_shown(folder),
        checkpoint=checkpoint,
        datasets=datasets,
        texts=texts,
        notes=notes,
    )


def _end(cost: Cost) -> str:
    reason = f" ({cost.reason})" if cost.reason else ""
    done = f"{plain(cost.updates, 0)} updates, {plain(cost.target_tokens, 0)} target tokens"
    return f"{cost.state or 'no status'}{reason}: {done}. Written {time.strftime('%Y-%m-%d %H:%M %Z')}."


def _panels(run: _Run) -> Iterator[Panel]:
    """The losses, and the first metrics of the newest series: the mean, and each set."""
    course = run.course
    losses = {"training": course.figures.get(TRAINING, []), "validation": course.validation}
    if any(losses.values()):
        curves = {name: points for name, points in losses.items() if points}
        yield Panel(title="loss without smoothing, nats a token", curves=curves, digits=3)
    drawn = [key for key in run.shown.figures if key in course.figures and key not in OF_REFERENCES]
    for key in drawn[:MOST_METRICS]:
        keys = [key, *(f"{key}/{name}" for name in course.sets)]
        points = {_set_of(run, one): [p for p in course.figures[one] if p[0] >= course.begins] for one in keys
                  if one in course.figures}  # fmt: skip
        described = run.shown.figures[key]
        yield Panel(title=described.label, curves={n: p for n, p in points.items() if p}, digits=described.digits)


def _set_of(run: _Run, key: str) -> str:
    """The name of the set that a figure is of."""
    _, _, part = key.partition("/")
    if part or len(run.course.sets) > 1:
        return part or f"mean over {len(run.course.sets)} sets"
    validation = [text.name for text in run.texts if text.role == "validation"]
    return validation[0] if len(validation) == 1 else "validation"


def _scores(run: _Run) -> Iterator[Table]:
    """Of each set the newest score by each metric and the best, with signatures; and of translations made since."""
    evaluated, rows = run.course.evaluated, list[Sequence[Cell]]()
    for name in metric_keys(evaluated):
        for key in [name, *(one for one in evaluated if one.startswith(f"{name}/"))]:
            value, points = number(evaluated, key), run.course.figures.get(key, [])
            known = run.shown.figures.get(name)
            digits, sign = (known.digits, -1 if known.higher_is_better is False else 1) if known else (2, 1)
            current = [point for point in points if point[0] >= run.course.begins]
            best = max(current, key=lambda point: (sign * point[1], -point[0]), default=None)
            said = "-" if best is None else f"{best[1]:.{digits}f} at {best[0]:,}"
            score = plain(value if math.isfinite(value) else None, digits)
            signature = Code(str(evaluated[f"{name}{SIGNATURE}"]))
            role = f"{_set_of(run, key)} (validation)"
            row = (role, run.shown.label(name), score, f"{evaluated['step']:,}", said, signature)
            rows.append(row)
    rows += _scores_since(run)
    if rows:
        yield Table(head=("set", "metric", "score", "at update", "best", "signature"), rows=rows)
    losses = [key for key in ("nll", "perplexity", "accuracy") if key in evaluated]
    if losses:
        named = {"nll": "loss without smoothing, nats a token", "accuracy": "accuracy of tokens"}
        figures = [(named.get(key, key), f"{number(evaluated, key):.4f}") for key in losses]
        yield Table(title="On the references", head=("validation", f"at update {evaluated['step']:,}"), rows=figures)


def _scores_since(run: _Run) -> Iterator[Sequence[Cell]]:
    """Scores of sets on which training did not evaluate, by translations that `zeromt evaluate` has kept."""
    metrics = [metric for metric in run.config.evaluation.metrics if metric.kind in AT_ONCE]
    scored = {run.course.evaluated.get("step")}
    for text in run.texts:
        kept = _kept(run, text)
        if kept is None or (kept[0] in scored and _of_training(run, text)):
            continue
        step, lines = kept
        of_text = ScoredText(target_language=text.languages[1], tokenizer=run.config.evaluation.tokenizer)
        scorer = Scorer(metrics, of_text, num_references=len(text.references))
        for metric in metrics:
            score = scorer.score(text.sources, lines, text.references)[metric.key()]
            said = f"{score.value:.{metric.digits}f}"
            yield (f"{text.name} ({text.role})", metric.label(), said, f"{step:,}", "-", Code(score.signature))


def _of_training(run: _Run, text: SetText) -> list[str]:
    """The translations of a set that the newest evaluation has left; empty if there are none."""
    validation = [one for one in run.texts if one.role == "validation"]
    step = run.course.evaluated.get("step")
    if not isinstance(step, int):
        return []
    for name in (text.name, None) if len(run.texts) == 1 or validation == [text] else (text.name,):
        path = hypotheses_file(run.folder, step, name)
        if is_file(path):
            return read_text(path, errors="replace").split("\n")[:-1]
    return []


def _kept(run: _Run, text: SetText) -> tuple[int, list[str]] | None:
    """The newest translations of a set that a command has kept, with the step of their checkpoint."""
    sources = hashlib.sha256("".join(f"{line}\n" for line in text.sources).encode()).hexdigest()
    found: dict[int, Path] = {}
    for path in sorted((run.folder / EVALUATIONS / "kept").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record: dict[str, Any] = read_json(path)
            if record["work"]["sources"] == sources:
                found[int(record["step"])] = path.with_suffix(".hyp")
    if not found:
        return None
    lines = read_text(found[max(found)], errors="replace").split("\n")[:-1]
    return (max(found), lines) if len(lines) == len(text.sources) else None


def _translations(run: _Run) -> Iterator[Table]:
    """Of each set that was translated some lines, at even distances, with what differs from the reference in bold."""
    for text in run.texts:
        kept = _kept(run, text)
        lines = _of_training(run, text) or (kept[1] if kept is not None else [])
        size = min(len(lines), len(text.sources))
        chosen = sorted({size * (2 * n + 1) // (2 * NUM_SAMPLES) for n in range(NUM_SAMPLES)} if size else ())
        rows: list[Sequence[Cell]] = [
            ([(text.sources[n], False)], *marked([text.references[0][n], lines[n]])) for n in chosen
        ]
        if rows:
            notes = ["lines at even distances; in bold what differs from the reference"]
            yield Table(
                title=f"{text.name} ({text.role})", head=("source", "reference", "translation"), rows=rows, notes=notes
            )


def _data(run: _Run) -> Iterator[Table]:
    """The datasets, the held-out sets, and of each dataset what filters dropped and where its pairs come from."""
    by_path = dict(zip((source.path for source in run.config.datasets), run.datasets, strict=False))
    rows: list[Sequence[Cell]] = []
    for path in dict.fromkeys(source.path for source in run.config.datasets):
        index = None if path not in by_path else by_path[path].index
        counts = (
            ("-",) * 3 if index is None else (f"{n:,}" for n in (index.pairs, index.source_tokens, index.target_tokens))
        )
        rows.append((Code(path), *counts))
    yield Table(head=("dataset", "pairs", "source pieces", "target pieces"), rows=rows)
    held_out = [
        (text.name, text.role, "-".join(text.languages), f"{len(text.sources):,}", str(len(text.references)))
        for text in run.texts
    ]
    if held_out:
        yield Table(title="Held-out sets", head=("set", "role", "languages", "lines", "references"), rows=held_out)
    for name, dataset in dataset_names(run.datasets).items():
        yield from dataset_tables(dataset, name)


def _facts(run: _Run) -> Table:
    config, cost, manifest = run.config, run.cost, {} if run.checkpoint is None else run.checkpoint.manifest
    stream, ledger = config.stream, read_figures(run.folder / "ledger.json") or {}
    rows: dict[str, str] = {"model": describe_model(config)}
    if run.checkpoint is not None:
        stored = run.checkpoint.stored("model")
        rows["parameters"] = f"{sum(math.prod(stored.shape(name)) for name in stored):,}"
    if run.datasets:
        pieces = run.datasets[0].index.tokenizer
        sizes = f"{pieces.source_vocab_size:,} of the source, {pieces.target_vocab_size:,} of the target"
        rows["vocabulary"] = f"{sizes}; tied embeddings: {str(config.model.tied_embeddings).lower()}"
    if parent := parent_of_run(run.folder):
        rows["began from"] = parent.describe()
    rows["an update"] = (
        f"{stream.micro_batches} micro-batches of up to {stream.source_tokens:,} source and {stream.target_tokens:,} "
        "target tokens"
    )
    rows["schedule"] = f"{describe_schedule(config.schedule, config)}; {config.optimizer.kind}"
    if config.phases:
        rows["phases"] = "; ".join(describe_phases(config))
    if manifest:
        world = f"{manifest.get('world_size')} ranks, ZeRO-{manifest.get('zero_stage')}, {manifest.get('precision')}"
        rows["world"] = ", ".join([world, *cost.device_hours])
    if "wall" in cost.seconds:
        rows["time"] = f"{interval(cost.seconds['wall'])}, {ledger.get('restarts', 0):.0f} restarts"
    return Table(head=("", ""), rows=list(rows.items()))


def _commands(run: _Run) -> Iterator[str]:
    """What makes the data and the run again, under another name, from the resolved configuration."""
    config = shlex.quote(str(run.folder / CONFIG))
    if not run.config.prepare.train.is_empty:
        yield f"zeromt prepare {config}"
    ranks = 1 if run.checkpoint is None else run.checkpoint.manifest.get("world_size", 1)
    parent = parent_of_run(run.folder)
    begun = "" if parent is None else f" --from {shlex.quote(parent.named)}"
    name = shlex.quote(f"name={run.config.name}-again")
    yield f"zeromt launch local {config} {name} --nproc {ranks}{begun}"
    yield f"zeromt evaluate {shlex.quote(str(run.folder.parent / f'{run.config.name}-again'))}"


def _versions(run: _Run) -> Table:
    rows: list[Sequence[Cell]] = []
    with contextlib.suppress(PackageNotFoundError):
        commit = source_commit()
        rows.append(("zeromt, which wrote this", Code(version("zeromt") + (f" at {commit}" if commit else ""))))
    if run.checkpoint is not None:
        manifest = run.checkpoint.manifest
        rows += [(name, Code(str(number))) for name, number in manifest["versions"].items()]
        rows += [("SHA-256 of the tokenizer", Code(manifest["fingerprints"]["tokenizer"]))]
        rows += [("SHA-256 of data", Code(one)) for one in manifest["fingerprints"]["data"]]
    return Table(head=("what", "is"), rows=rows)
