"""`zeromt compare`: several runs, as one table or as JSON."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.environment import restored_environment
from configs.process.streams import tell
from configs.process.text import to_json, visible_name
from trainer.checkpoint.format import Checkpoint
from trainer.evaluation.sets import SetText
from trainer.inference.loading import with_checkpoints
from trainer.runs.layout import LEDGER_FILE, METRICS_FILE, STATUS_FILE, run_of
from trainer.runs.ledger import read_ledger
from trainer.runs.metrics_file import Line, number, read_lines
from trainer.runs.parents import hash_of
from trainer.runs.status import read_status
from zeromt.comparing.sets import Subject, shared_sets, subjects_of, untagged
from zeromt.comparing.significance import score_runs
from zeromt.translator.engine import Engine
from zeromt.translator.scored import Wanted, parse_set, settings_of, translated
from zeromt.translator.worker import Options

SIGNIFICANT = 0.05
"""sacreBLEU's own threshold."""
FEW = 50
"""With fewer sentences the bootstrap's intervals contain the true score less often than they say."""
ELSEWHERE = ("name", "output")
"""Fields that only say where a run is."""
MOST_CHARACTERS = 300
"""Characters shown of a cell."""
COST = (
    "goodput: the fraction of wall time spent on updates that count; hours of devices are summed over ranks; "
    "a dash: not known"
)


@restored_environment()
def compare_runs(
    *,
    runs: Sequence[str],
    sets: Sequence[str] | None,
    metrics: list[str] | None,
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
        tokenizer: sacreBLEU's, of BLEU.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: see `zeromt translate`.
        search: fields of the runs' search sections to replace.
        bootstrap, randomisation: samples to draw; 0 turns the test off.
        as_json: print JSON.

    Raises:
        UserError: a path is not a run, a set cannot be read or is not there, or a metric cannot be computed.
    """
    wanted = Wanted.of(metrics, tokenizer)
    if wanted.commands:
        raise UserError(f"--metrics: {wanted.commands[0].name} is a command; allowed are such as bleu, chrf, ter")
    named = [parse_set(text) for text in sets or ()]
    how = Options(run="", search=search, raw_weights=raw_weights, precision=precision)

    def compare(whole: Sequence[Checkpoint]) -> dict[str, Any]:
        if len({checkpoint.folder.resolve() for checkpoint in whole}) < len(whole):
            raise UserError(f"RUN: {', '.join(runs)} name one checkpoint twice; give different ones")
        subjects = subjects_of(runs, [Engine(how, [checkpoint]) for checkpoint in whole])
        shared, left = shared_sets(subjects, named)
        notes = [] if shared else ["nothing is scored: there is no set that every run has; --set names one"]
        if left:
            notes.append(f"not every run has {', '.join(left)}; --set {left[0]} has all runs translate it")
        made = [_translations(one, [texts[n] for texts in shared]) for n, one in enumerate(subjects)]
        scored = []
        for place, (text, *_) in enumerate(shared):
            scores = score_runs(
                wanted.scorer(subjects[0].engine.config.evaluation, text),
                [untagged(line) for line in text.sources],
                text.references,
                [of_run[place] for of_run in made],
                bootstrap=bootstrap,
                randomisation=randomisation,
            )
            about = {"name": text.name, "languages": "-".join(text.languages), "role": text.role}
            sizes = {"pairs": len(text.sources), "references": len(text.references)}
            scored.append({**about, **sizes, "scores": scores})
        fields = differing([_fields(subject) for subject in subjects])
        return {"runs": [_run(subject) for subject in subjects], "sets": scored, "fields": fields, "notes": notes}

    comparison = with_checkpoints(runs, compare)
    print(to_json(comparison, indent=1) if as_json else "\n".join(to_lines(comparison)), flush=True)
    return 0


def _translations(subject: Subject, texts: Sequence[SetText]) -> list[list[str]]:
    """A run's translations of each set; its model is only loaded if there is one.

    Raises:
        UserError: the model cannot be loaded, or knows none of a set's languages.
    """
    engine = subject.engine
    with contextlib.ExitStack() as stack:
        if texts:
            tell(f"zeromt: {subject.label}: translating {', '.join(text.name for text in texts)}")
            engine.start(stack)
        translations = [translated(engine, text, settings_of(engine, text)) for text in texts]
    engine.warn()
    return translations


def _run(subject: Subject) -> dict[str, Any]:
    [checkpoint] = subject.engine.checkpoints
    folder = run_of(checkpoint.folder)
    return {
        "label": subject.label,
        "path": subject.path,
        "step": int(checkpoint.manifest["step"]),
        "checkpoint": hash_of(checkpoint.folder),
        "cost": {} if folder is None else read_cost(folder),
    }


def read_cost(folder: Path) -> dict[str, Any]:
    """What a run cost, and how it ended, as far as the files in its folder tell.

    Raises:
        OSError: metrics.jsonl is there and cannot be read.
    """
    trained: Line = {}
    for line in read_lines(folder / METRICS_FILE, having='"train"'):
        trained = line if line.get("kind") == "train" else trained
    ledger = read_ledger(folder / LEDGER_FILE)
    status = read_status(folder / STATUS_FILE)
    tokens, seconds = number(trained, "total_target_tokens"), number(trained, "total_seconds")
    return {
        "state": None if status is None else status.state,
        "updates": number(trained, "step"),
        "target tokens": tokens,
        "target tokens a second": tokens / seconds if seconds > 0 else None,
        "wall hours": ledger["wall_seconds"] / 3600 if ledger else None,
        "goodput": ledger.get("goodput"),
        **{f"{device} hours": spent / 3600 for device, spent in ledger.get("devices", {}).items()},
    }


def _fields(subject: Subject) -> dict[str, Any]:
    config = {k: v for k, v in dataclasses.asdict(subject.engine.config).items() if k not in ELSEWHERE}
    manifest = subject.engine.checkpoints[0].manifest
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


def to_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """The table, a column a run, and notes below it."""
    runs, notes = comparison["runs"], list(comparison["notes"])
    rows = [["", *(run["label"] for run in runs)], ["checkpoint", *(f"step {run['step']:,}" for run in runs)]]
    for one in comparison["sets"]:
        notes.append(f"{one['name']}: {one['role']}, {one['languages']}, {one['pairs']:,} sentences")
        for metric in one["scores"]:
            rows += _scores(one["name"], metric)
            notes.append(f"{one['name']} {metric['label']}: {metric['signature']}")
        if one["pairs"] < FEW:
            notes.append(f"{one['name']}: of fewer than {FEW} sentences: intervals are too narrow")
    rows += [[field, *values] for field, values in comparison["fields"].items()]
    kinds = dict.fromkeys(kind for run in runs for kind in run["cost"])
    rows += [[kind, *(_figure(run["cost"].get(kind)) for run in runs)] for kind in kinds]
    cells = [[visible_name(cell)[:MOST_CHARACTERS] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    first = runs[0]["label"]
    notes.append(f"±: 95 %; p: the probability of such a difference from {first} by chance; *: p < {SIGNIFICANT}")
    yield ""
    yield from (visible_name(note) for note in (*notes, COST))


def _scores(name: str, metric: Mapping[str, Any]) -> Iterator[list[str]]:
    """The rows of a metric: the scores, and what the tests say where there were some."""
    runs, digits = metric["runs"], metric["digits"]
    halves = ["" if run.get("interval") is None else f" ± {run['interval']:.{digits}f}" for run in runs]
    scores = ["-" if run["score"] is None else f"{run['score']:.{digits}f}" for run in runs]
    yield [f"{name} {metric['label']}", *(score + half for score, half in zip(scores, halves, strict=True))]
    if any(run.get("difference") is not None for run in runs):
        yield ["  difference", "-", *(f"{run['difference']:+.{digits}f}" for run in runs[1:])]
    if any(run.get("p") is not None for run in runs):
        yield ["  p", "-", *(f"{run['p']:.4f}{'*' if run['p'] < SIGNIFICANT else ''}" for run in runs[1:])]


def _figure(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,.6g}" if math.isfinite(value) else "-"
