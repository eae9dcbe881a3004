"""How far a run has come, how fast it goes and how good it is, from the files of its folder. Does not import torch.

A job may be writing them: a last line that is half written, a file that is missing or broken, is passed over.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from launcher.run_folder import checkpoint_folder

_CHUNK_BYTES = 1 << 16
_FARTHEST_BYTES = 1 << 22
"""From the end of metrics.jsonl; some 6,000 lines. An evaluation before them is looked for in the checkpoints."""
_RATE_LINES = 20
"""Lines of training that a rate is the mean of."""
_NUM_STATES = 3
"""Checkpoints whose state is tried."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Score:
    """A score of the validation set."""

    step: int
    bleu: float
    chrf: float | None = None
    """None where only the BLEU is known."""
    series: str | None = None
    """Scores of one series may be compared; None in runs from before there were such."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Progress:
    """How far, how fast, how good; None where it is not known."""

    max_updates: int | None
    """The last update that the limit allows, also where that is counted from a reset."""
    updates_per_second: float | None
    """Mean over the last lines of training; evaluations and saves between them count."""
    target_tokens_per_second: float | None
    """The same for target tokens."""
    seconds_left: float | None
    """At this rate, to `training.max_updates` or `max_minutes`; `max_epochs` may end the run before."""
    checkpoint_age: float | None
    """Seconds since the newest complete checkpoint was committed; negative where its clock is ahead of this one."""
    last_score: Score | None
    best_score: Score | None
    """By BLEU; both of the current series."""


def read_progress(folder: Path, steps: list[int]) -> Progress:
    """Look at a run's folder.

    Args:
        folder: the run's.
        steps: of its complete checkpoints, in order.
    """
    limits = read_limits(folder / "config.yaml")
    lines, evaluations, series = read_metrics_end(folder / "metrics.jsonl")
    updates, tokens = rates(lines)
    scores = current_scores(evaluations, series, *_saved_scores(folder, steps))
    return Progress(
        max_updates=last_update(limits, lines[0] if lines else {}),
        updates_per_second=updates,
        target_tokens_per_second=tokens,
        seconds_left=seconds_left(limits, lines[0], updates) if lines else None,
        checkpoint_age=_age(checkpoint_folder(folder, steps[-1]) / "manifest.json") if steps else None,
        last_score=scores[max(scores)] if scores else None,
        best_score=max(scores.values(), key=lambda score: (score.bleu, -score.step), default=None),
    )


def read_limits(path: Path) -> dict[str, Any]:
    """The section `training` of a resolved configuration; empty where it cannot be read."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    section = tree.get("training") if isinstance(tree, dict) else None
    return section if isinstance(section, dict) else {}


def current_scores(
    evaluations: list[Score], series: str | None, saved_series: str | None, saved: dict[int, float]
) -> dict[int, Score]:
    """The scores of the current series, by step.

    Args:
        evaluations: of metrics.jsonl, the newest first.
        series: the newest that metrics.jsonl names; None where it names none.
        saved_series: of the newest checkpoint, as the next.
        saved: its scores by step.
    """
    current = series or saved_series
    scores = {}
    if current == saved_series:
        scores = {step: Score(step=step, bleu=bleu, series=current) for step, bleu in saved.items()}
    for score in reversed(evaluations):
        # One without a series counts where the checkpoint has taken it for one of its own.
        if score.series == current or (score.series is None and saved.get(score.step) == score.bleu and scores):
            scores[score.step] = score
    return scores


def read_metrics_end(path: Path) -> tuple[list[dict[str, Any]], list[Score], str | None]:
    """The last lines of training and the evaluations as far back as is looked, the newest first, and the last series.

    Reads no more than the file's last 4 MiB, and no more of those than it takes to find an evaluation.
    """
    train: list[dict[str, Any]] = []
    scores: list[Score] = []
    series: str | None = None
    for line in _lines_from_end(path):
        if len(train) == _RATE_LINES:
            if scores or series:
                break
            if b'"evaluation"' not in line and b'"score_series"' not in line:
                continue
        tree = _parse(line)
        if tree.get("kind") == "train" and _whole(tree.get("step")) is not None:
            train.append(tree)
        elif tree.get("kind") == "evaluation" and (score := _score(tree)) is not None:
            scores.append(score)
        if isinstance(tree.get("series"), str):
            series = series or tree["series"]
    return train[:_RATE_LINES], scores, series


def _lines_from_end(path: Path) -> Iterator[bytes]:
    """The complete lines of a file, the last first."""
    try:
        with path.open("rb") as file:
            place = file.seek(0, 2)
            farthest = max(0, place - _FARTHEST_BYTES)
            pieces: list[bytes] = []  # of the line whose beginning was not seen yet, the last first
            while place > farthest:
                begin = max(farthest, place - _CHUNK_BYTES)
                file.seek(begin)
                first, *others = file.read(place - begin).split(b"\n")
                if others:
                    others[-1] += b"".join(reversed(pieces))
                    pieces = []
                    yield from reversed(others)
                pieces.append(first)
                place = begin
            if place == 0:
                yield b"".join(reversed(pieces))
    except OSError:
        return


def rates(lines: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Updates and target tokens a second.

    Args:
        lines: of training, the newest first. Of one alone, its own means have to do.
    """
    if not lines:
        return None, None
    oldest = lines[0]
    for line in lines[1:]:
        if line["step"] >= oldest["step"]:  # the run was cut back between them
            break
        oldest = line
    if oldest is lines[0]:
        seconds = _number(oldest, "seconds_per_update")
        return _positive(1 / seconds if seconds else math.nan), _positive(_number(oldest, "tokens_per_second"))
    steps, tokens, seconds = (
        _number(lines[0], key) - _number(oldest, key) for key in ("step", "total_target_tokens", "total_seconds")
    )
    if not seconds > 0:
        return None, None
    return _positive(steps / seconds), _positive(tokens / seconds)


def seconds_left(
    limits: Mapping[str, Any], newest: Mapping[str, Any], updates_per_second: float | None
) -> float | None:
    """Until the first limit that can be foreseen.

    Args:
        limits: the section `training`.
        newest: line of training.
        updates_per_second: None where it is not known.
    """
    left = []
    if updates_per_second and (most := last_update(limits, newest)) is not None:
        left.append((most - newest["step"]) / updates_per_second)
    minutes = _number(limits, "max_minutes")
    spent = _number(newest, "total_seconds") - (_number(_limits_from(newest), "seconds") if _limits_from(newest) else 0)
    if math.isfinite(minutes) and math.isfinite(spent):
        left.append(60 * minutes - spent)
    return max(0.0, min(left)) if left else None


def last_update(limits: Mapping[str, Any], newest: Mapping[str, Any]) -> int | None:
    """The last update that `max_updates` allows.

    Args:
        limits: the section `training`.
        newest: line of training, which says from where limits are counted.
    """
    most = _whole(limits.get("max_updates"))
    return None if most is None else most + (_whole(_limits_from(newest).get("step")) or 0)


def _limits_from(line: Mapping[str, Any]) -> Mapping[str, Any]:
    found = line.get("limits_from")
    return found if isinstance(found, dict) else {}


def _saved_scores(folder: Path, steps: list[int]) -> tuple[str | None, dict[int, float]]:
    """The current series and its scores, as the newest readable checkpoint remembers them."""
    for step in reversed(steps[-_NUM_STATES:]):
        try:
            tree = json.loads((checkpoint_folder(folder, step) / "state.json").read_text(encoding="utf-8"))
            scores = {int(at): float(bleu) for at, bleu in tree["trainer"]["scores"].items()}
            series = tree["trainer"].get("series")
            name = None if series is None else str(series["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        return name, {at: bleu for at, bleu in scores.items() if math.isfinite(bleu)}
    return None, {}


def _parse(line: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(line)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _score(tree: Mapping[str, Any]) -> Score | None:
    step, bleu, chrf = _whole(tree.get("step")), _number(tree, "bleu"), _number(tree, "chrf")
    if step is None or not math.isfinite(bleu):
        return None
    series = tree.get("series")
    return Score(
        step=step,
        bleu=bleu,
        chrf=chrf if math.isfinite(chrf) else None,
        series=series if isinstance(series, str) else None,
    )


def _age(path: Path) -> float | None:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(tree: Mapping[str, Any], key: str) -> float:
    """NaN where there is no number."""
    value = tree.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _positive(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
