"""A run's progress, speed and scores, from the files of its folder. Does not import torch.

A job may be writing them, so an incomplete last line, and a missing or broken file, are ignored.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs.process.files.inside import read_json
from trainer.runs.layout import CONFIG, MANIFEST, METRICS_FILE, STATE, checkpoint_folder, read_config
from trainer.runs.metrics_file import Score, number, read_end, read_shown, saved_scores, whole

_NUM_STATES = 3
"""Number of checkpoints whose state is tried."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Progress:
    """Progress, speed and scores; None for what is not known."""

    max_updates: int | None
    """The last update that the limit allows, also if it is counted from a reset."""
    share: str | None = None
    """How far the run is on its way to the nearest limit, such as '67 updates, 2:46 of 10:00'."""
    fraction: float | None = None
    """The same from 0 to 1."""
    train_loss: float | None = None
    """The newest training loss."""
    updates_per_second: float | None
    """Mean over the last training lines, including evaluations and saves between them."""
    target_tokens_per_second: float | None
    """The same for target tokens."""
    seconds_left: float | None
    """Seconds to `training.max_updates` or `max_minutes` at this rate; `max_epochs` may end the run earlier."""
    phase: str | None = None
    """The name of the phase of the last update, in a run with phases."""
    checkpoint_age: float | None
    """Seconds since the newest complete checkpoint was committed; negative if its clock is ahead of this one."""
    last_score: Score | None
    best_score: Score | None
    """Chosen by `checkpoint.best_by`; both of the current series."""


def read_progress(folder: Path, steps: list[int], *, step: int | None = None) -> Progress:
    """Read a run's folder.

    Args:
        folder: the run's.
        steps: of its complete checkpoints, in order.
        step: updates done, where that is known.
    """
    limits = read_limits(folder / CONFIG)
    lines, evaluations, series = read_end(folder / METRICS_FILE)
    updates, tokens = rates(lines)
    shown, newest = read_shown(folder), lines[0] if lines else {}
    fraction, text = (None, None) if step is None else share(limits, newest, step)
    scores = {
        step: replace(score, figures={key: score.figures.get(key) for key in shown.figures})
        for step, score in current_scores(
            evaluations, series, *_saved_scores(folder, steps), best=shown.best_by
        ).items()
    }
    return Progress(
        max_updates=last_update(limits, newest),
        share=text,
        fraction=fraction,
        train_loss=_finite(number(newest, "loss")),
        updates_per_second=updates,
        target_tokens_per_second=tokens,
        seconds_left=seconds_left(limits, newest, updates) if newest else None,
        phase=_text(newest.get("phase")),
        checkpoint_age=_age(checkpoint_folder(folder, steps[-1]) / MANIFEST) if steps else None,
        last_score=scores[max(scores)] if scores else None,
        best_score=shown.best(scores.values()),
    )


def read_limits(path: Path) -> dict[str, Any]:
    """The section `training` of a resolved configuration; empty if it cannot be read."""
    section = read_config(path).get("training")
    return section if isinstance(section, dict) else {}


def current_scores(
    evaluations: list[Score], series: str | None, saved_series: str | None, saved: dict[int, float], *, best: str
) -> dict[int, Score]:
    """The scores of the current series, by step.

    Args:
        evaluations: of metrics.jsonl, the newest first.
        series: the newest in metrics.jsonl; None if there is none.
        saved_series: from the newest checkpoint, like the next.
        saved: its scores by step.
        best: their figure.
    """
    current = series or saved_series
    scores = {}
    if current == saved_series:
        scores = {step: Score(step=step, figures={best: score}, series=current) for step, score in saved.items()}
    for score in reversed(evaluations):
        if score.series == current and score.figures.get(best) is not None:
            scores[score.step] = score
    return scores


def rates(lines: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Updates and target tokens per second.

    Args:
        lines: of training, newest first. With only one, its own means are used.
    """
    if not lines:
        return None, None
    oldest = lines[0]
    for line in lines[1:]:
        if line["step"] >= oldest["step"]:  # the run was cut back between them
            break
        oldest = line
    if oldest is lines[0]:
        seconds = number(oldest, "seconds_per_update")
        return _positive(1 / seconds if seconds else math.nan), _positive(number(oldest, "tokens_per_second"))
    steps, tokens, seconds = (
        number(lines[0], key) - number(oldest, key) for key in ("step", "total_target_tokens", "total_seconds")
    )
    if not seconds > 0:
        return None, None
    return _positive(steps / seconds), _positive(tokens / seconds)


def seconds_left(
    limits: Mapping[str, Any], newest: Mapping[str, Any], updates_per_second: float | None
) -> float | None:
    """Seconds to the first limit that can be predicted.

    Args:
        limits: the section `training`.
        newest: the newest training line.
        updates_per_second: None if not known.
    """
    left = []
    if updates_per_second and (most := last_update(limits, newest)) is not None:
        left.append((most - newest["step"]) / updates_per_second)
    tokens, of_tokens = _since(newest, "total_target_tokens", "target_tokens"), number(limits, "max_target_tokens")
    if updates_per_second and math.isfinite(of_tokens) and tokens > 0:
        an_update = number(newest, "total_target_tokens") / newest["step"]
        left.append((of_tokens - tokens) / an_update / updates_per_second)
    minutes, spent = number(limits, "max_minutes"), _since(newest, "total_seconds", "seconds")
    if math.isfinite(minutes) and math.isfinite(spent):
        left.append(60 * minutes - spent)
    return max(0.0, min(left)) if left else None


def share(limits: Mapping[str, Any], newest: Mapping[str, Any], step: int) -> tuple[float | None, str]:
    """How far a run is on its way to the nearest limit but `max_epochs`, from 0 to 1 and as text.

    Args:
        limits: the section `training`.
        newest: the newest training line; empty if there is none.
        step: updates done.
    """
    updates, begun = f"{step:,} update{'s' * (step != 1)}", _limits_from(newest)
    ways: list[tuple[float, str]] = []
    if (most := last_update(limits, newest)) is not None and step <= most:
        since = whole(begun.get("step")) or 0
        ways.append(((step - since) / max(most - since, 1), f"{step:,} of {most:,} updates"))
    tokens, of_tokens = _since(newest, "total_target_tokens", "target_tokens"), number(limits, "max_target_tokens")
    if of_tokens > 0 and math.isfinite(tokens):
        ways.append((tokens / of_tokens, f"{updates}, {tokens:,.0f} of {of_tokens:,.0f} target tokens"))
    seconds, of_seconds = _since(newest, "total_seconds", "seconds"), 60 * number(limits, "max_minutes")
    if of_seconds > 0 and math.isfinite(seconds):
        ways.append((seconds / of_seconds, f"{updates}, {_clock(seconds)} of {_clock(of_seconds)}"))
    if not ways:
        return None, updates
    fraction, text = max(ways)
    return min(max(fraction, 0.0), 1.0), text


def _since(newest: Mapping[str, Any], figure: str, begin: str) -> float:
    """A figure of a training line, counted from where limits are; NaN if it is not known."""
    begun = _limits_from(newest)
    return number(newest, figure) - (number(begun, begin) if begun else 0)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def last_update(limits: Mapping[str, Any], newest: Mapping[str, Any]) -> int | None:
    """The last update that `max_updates` allows.

    Args:
        limits: the section `training`.
        newest: the newest training line, which says from where limits are counted.
    """
    most = whole(limits.get("max_updates"))
    return None if most is None else most + (whole(_limits_from(newest).get("step")) or 0)


def _limits_from(line: Mapping[str, Any]) -> Mapping[str, Any]:
    limits = line.get("limits_from")
    return limits if isinstance(limits, dict) else {}


def _saved_scores(folder: Path, steps: list[int]) -> tuple[str | None, dict[int, float]]:
    """The current series and its scores, from the newest readable checkpoint."""
    for step in reversed(steps[-_NUM_STATES:]):
        try:
            return saved_scores(read_json(checkpoint_folder(folder, step) / STATE))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None, {}


def _age(path: Path) -> float | None:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _positive(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
