"""Translations on disk, so that no set is decoded twice with the same checkpoint and search.

Training writes those of its evaluations to `eval/step-NNNNNNNN[.SET].hyp`; later ones are in `eval/kept/`, named by the
hash of the checkpoint and a hash of everything else that a translation depends on.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import RunConfig, SearchSection
from configs.components import ScoredText
from configs.process.files import FileError, is_file
from configs.process.files.inside import make_folder, read_bytes, read_json, read_text, write_bytes
from trainer.checkpoint.format import Checkpoint
from trainer.evaluation.sets import SetText
from trainer.inference.translation.languages import LanguageTags
from trainer.metrics.scoring import Scorer
from trainer.runs.layout import (
    CONFIG,
    EVALUATIONS,
    METRICS_FILE,
    hypotheses_file,
    kept_hypotheses,
    read_config,
    run_of,
)
from trainer.runs.metrics_file import number, read_lines
from trainer.runs.parents import hash_of

_SAME_SCORE = 1e-6
_CHECKED = ("bleu", "chrf", "ter")
"""Metrics that are computed at once, without a command."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Work:
    """Everything that a set's translations depend on, except the checkpoint."""

    sources: str
    """SHA-256 of the source lines."""
    weights: str
    """model or ema."""
    precision: str
    search: Mapping[str, Any]
    tags: tuple[int, int] | None
    """Pieces with which source and translation begin."""

    @classmethod
    def of(
        cls, text: SetText, search: SearchSection, tags: LanguageTags | None, *, weights: str, precision: str
    ) -> "Work":
        """What is to be translated, and how."""
        return cls(
            sources=_sha256("".join(f"{line}\n" for line in text.sources)),
            weights=weights,
            precision=precision,
            search=plain_search(search),
            tags=None if tags is None else (tags.source, tags.target),
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypotheses:
    """The translations of a set, and where they are from."""

    lines: Sequence[str]
    file: Path | None
    """None if they could not be kept."""
    origin: str
    """`training`, `kept` or `decoded`."""


def plain_search(section: SearchSection) -> dict[str, Any]:
    """The fields of a search that affect translations: the size of batches does so only by rounding."""
    return {name: value for name, value in dataclasses.asdict(section).items() if name != "batch_tokens"}


def read_kept(checkpoint: Checkpoint, work: Work) -> Hypotheses | None:
    """The translations kept for this work; None if there are none or the file is corrupt."""
    if (path := _path(checkpoint, work)) is None:
        return None
    try:
        record = read_json(_record(path), within=_run(path))
        content = read_bytes(path, within=_run(path))
        if record["sha256"] != hashlib.sha256(content).hexdigest() or record["work"] != _plain(work):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Hypotheses(lines=content.decode().split("\n")[:-1], file=path, origin="kept")


def keep(checkpoint: Checkpoint, work: Work, lines: Sequence[str], *, name: str) -> Path | None:
    """Keep translations in the run's folder; returns the file, or None if it cannot be written.

    Args:
        checkpoint: that made them.
        work: what was translated, and how.
        lines: one for each source, without line feeds.
        name: of the set.
    """
    if (path := _path(checkpoint, work)) is None:
        return None
    content = "".join(f"{line}\n" for line in lines).encode()
    record = {
        "set": name,
        "step": checkpoint.manifest["step"],
        "checkpoint": hash_of(checkpoint.folder),
        "work": _plain(work),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        make_folder(path.parent, within=_run(path))
        for file, data in ((path, content), (_record(path), (json.dumps(record, indent=1) + "\n").encode())):
            write_bytes(file, data, within=_run(path))
    except (OSError, FileError):
        return None
    return path


def read_of_training(checkpoint: Checkpoint, config: RunConfig, text: SetText, work: Work) -> Hypotheses | None:
    """The translations of a set that training wrote at a checkpoint's step, if they are certainly of this work.

    That is so if the search was and is the configuration's, and their score equals the logged one.

    Args:
        checkpoint: of the run.
        config: the checkpoint's.
        text: the set, under the run's name for it.
        work: what is wanted. Its number format is ignored: training had its own.
    """
    folder, step = run_of(checkpoint.folder), int(checkpoint.manifest["step"])
    if folder is None or work.weights != checkpoint.weights_kind(raw=False):
        return None
    if work.search != plain_search(config.evaluation.search):
        return None
    if _search_in(folder / CONFIG) != _search_in(checkpoint.folder / CONFIG):
        return None
    evaluations = read_lines(folder / METRICS_FILE, having='"evaluation"')
    logged = [line for line in evaluations if line.get("kind") == "evaluation" and line.get("step") == step]
    for name, ending in ((text.name, f"/{text.name}"), (None, "")):
        path = folder / EVALUATIONS / hypotheses_file(step, name)
        if logged and is_file(path):
            lines = read_text(path, within=folder, errors="replace").split("\n")[:-1]
            if _has_score(lines, text, config, logged[-1], ending):
                return Hypotheses(lines=lines, file=path, origin="training")
    return None


def _has_score(lines: Sequence[str], text: SetText, config: RunConfig, logged: Mapping[str, Any], ending: str) -> bool:
    """Whether translations cover a whole set and score what was logged, by sacreBLEU's metrics."""
    if len(lines) != len(text.sources):
        return False
    metrics = [metric for metric in config.evaluation.metrics if metric.kind in _CHECKED]
    known = {metric.key(): number(logged, metric.key() + ending) for metric in metrics}
    # Scores of 0 identify nothing: the worst translations of any text have them.
    if not any(known.values()) or not all(map(math.isfinite, known.values())):
        return False
    scored = ScoredText(target_language=text.languages[1], tokenizer=config.evaluation.tokenizer)
    scorer = Scorer(metrics, scored, num_references=len(text.references))
    scores = scorer.score(text.sources, lines, text.references)
    return all(abs(scores[key].value - value) < _SAME_SCORE for key, value in known.items())


def _search_in(path: Path) -> object:
    evaluation = read_config(path).get("evaluation")
    return evaluation.get("search") if isinstance(evaluation, dict) else None


def _path(checkpoint: Checkpoint, work: Work) -> Path | None:
    folder, sha256 = run_of(checkpoint.folder), hash_of(checkpoint.folder)
    if folder is None or sha256 is None:
        return None
    digest = _sha256(json.dumps(_plain(work), sort_keys=True))
    return folder / f"{kept_hypotheses(sha256, digest)}.hyp"


def _run(path: Path) -> Path:
    """The run's folder, for kept translations in `eval/kept`."""
    return path.parents[2]


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _plain(work: Work) -> dict[str, Any]:
    """The value after a round trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(work), default=str))
    return plain


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
