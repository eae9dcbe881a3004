"""Series of scores: scores that may be compared, because they were measured alike.

A series is defined by the text and languages of the held-out sets, sacreBLEU's signature, the search, the model's
tokenizer, and whether the weights or their moving average were scored. If any of these changes, a new series begins,
and only its scores decide which step is best. The number format, the size of batches and the number of ranks are not
part of it: they change a score by less than its noise.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from configs import RunConfig, SearchSection
from configs.components import Sampler
from configs.languages import language
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.state import ScoreSeries, TrainerState
from trainer.datasets import tokenizer_of
from trainer.evaluation.sets import HeldOutSet

log = logging.getLogger(__name__)

_ELSEWHERE = frozenset({"batch_tokens", "sampler"})
"""Search fields without effect on a translation, and those that `_sampling` describes."""
_OF_BEAMS = frozenset({"patience", "length_penalty", "length_penalty_kind"})
"""Search fields that choose among the hypotheses of a beam."""
_OF_SAMPLING = frozenset({"seed"})
_UNSAID = {"metric": "bleu", "better": "higher"}
"""The values that hold if a series does not state them."""


def enter_series(
    config: RunConfig,
    datasets: Sequence[Dataset],
    held_out: Sequence[HeldOutSet],
    state: TrainerState,
) -> dict[str, str] | None:
    """Move a checkpoint's state to the series that the run's scores belong to; returns an event if it is another.

    Args:
        config: the run's.
        datasets: the run's.
        held_out: the sets that are scored.
        state: from the checkpoint, or of a new run; changed in place.
    """
    tokenizer = tokenizer_of(datasets).fingerprint
    curves = {figure: current_series(config, held_out, tokenizer, figure) for figure in config.evaluation.directions}
    current = curves.pop(config.best_by)
    changed = enter(state, current, curves)
    state.best_by = config.best_by
    if changed is None:
        return None
    log.info("%s", changed)
    return {"event": "score_series", "series": current.id, "reason": changed}


def current_series(
    config: RunConfig, held_out: Sequence[HeldOutSet], tokenizer: str, figure: str | None = None
) -> ScoreSeries:
    """The series of a figure of this run's evaluations, without scores.

    Args:
        config: the run's.
        held_out: the sets that are scored; their order and names do not matter.
        tokenizer: the model's fingerprint.
        figure: its name; by default the one that decides which step is best.
    """
    held_out = [one for one in held_out if one.role == "validation"]
    sets = sorted(_content(one, config.evaluation.max_pairs) for one in held_out)
    fields = {
        "validation set": hashlib.sha256("\n".join(sets).encode()).hexdigest()[:12],
        **_measure(config, figure or config.best_by, held_out),
        "tokenizer": tokenizer[:12],
        "weights": "moving average" if config.training.ema_decay else "of the last update",
    }
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return ScoreSeries(id=digest[:12], fields=fields)


def enter(state: TrainerState, series: ScoreSeries, curves: Mapping[str, ScoreSeries] | None = None) -> str | None:
    """Make these series current, with the scores that the state knows of them; returns what changed, if anything did.

    Args:
        state: changed in place.
        series: of the figure that decides which step is best; only its change is announced.
        curves: of all other figures, by their names.
    """
    left = state.series
    others = {one.id: one for one in (*state.other_series, *state.curves.values()) if one.scores}
    changed = None
    if left is None or left.id != series.id:
        changed = _enter(state, series, others)
    state.curves = {name: others.pop(one.id, one) for name, one in (curves or {}).items()}
    state.other_series = list(others.values())
    return changed


def _enter(state: TrainerState, series: ScoreSeries, others: dict[str, ScoreSeries]) -> str | None:
    """Switch the series that decides which step is best, and store the former one among the others."""
    left = state.series
    if state.scores:
        others[left.id if left else ""] = ScoreSeries(
            id=left.id if left else "", fields=left.fields if left else {}, scores=state.scores
        )
    back = others.pop(series.id, None)
    num_left = len(state.scores)
    state.series, state.series_start = series, state.step
    state.scores = dict(back.scores) if back else {}
    if not num_left:
        return None
    came = f"{len(state.scores)} scores are known from before" if back else "it begins without scores"
    return (
        f"evaluation differs from that of the {num_left} scores so far ({describe_change(left, series)}): "
        f"another series of scores, {came}; what is best goes by it alone"
    )


def describe_change(left: ScoreSeries | None, series: ScoreSeries) -> str:
    """The differences between two series; how the first was measured may be unknown."""
    if left is None or not left.fields:
        return "they say not how they were measured, and settings, data or versions have changed since"
    changes = []
    for name in sorted(set(left.fields) | set(series.fields)):
        then, now = (one.fields.get(name, _UNSAID.get(name, "default")) for one in (left, series))
        if then != now:
            changes.append(f"{name}: {then} -> {now}")
    return "; ".join(changes)


def _measure(config: RunConfig, figure: str, held_out: Sequence[HeldOutSet]) -> dict[str, str]:
    """What a figure measures and how; only what differs from BLEU is stated."""
    direction = {} if config.evaluation.directions[figure] else {"better": "lower"}
    queued = next((one for one in config.evaluation.queued if one.name == figure), None)
    if queued is not None:
        search = _search(config.evaluation.search)
        return {"signature": queued.signature, "metric": f"command {figure}", **direction, **search}
    metric = next((one for one in config.evaluation.metrics if one.key() == figure), None)
    if metric is None:  # of the references, which need no search
        signature = config.loss.signature() if figure == "loss" else "no smoothing"
        return {"signature": signature, "metric": figure, **direction}
    signatures = {held_out_set.scorer.signatures[figure] for held_out_set in held_out}
    kind = {} if metric.kind == "bleu" else {"metric": metric.kind}
    return {"signature": "; ".join(sorted(signatures)), **kind, **direction, **_search(config.evaluation.search)}


def _content(held_out: HeldOutSet, max_pairs: int | None) -> str:
    """Hash of a set's languages and of the lines that are scored."""
    codes = [language(code) for code in held_out.languages]
    content: list[Any] = [
        [(one.code, one.script, one.territory) for one in codes],
        list(held_out.sources[:max_pairs]),
        *(list(lines[:max_pairs]) for lines in held_out.references),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _search(section: SearchSection) -> Mapping[str, str]:
    """The search fields that affect translations and are not at their default; so a new field changes no series."""
    idle = set(_ELSEWHERE)
    if section.sampler is not None or section.beam == 1:
        idle |= _OF_BEAMS
    if section.sampler is None:
        idle |= _OF_SAMPLING
    changed = {name: value for name, value in _not_default(section).items() if name not in idle}
    return {f"evaluation.search.{name}": value for name, value in {**changed, **_sampling(section.sampler)}.items()}


def _sampling(sampler: Sampler | None) -> dict[str, str]:
    """What a sampler's draws depend on; our own sampler is written as before it became a component."""
    if sampler is None:
        return {}
    changed = {name: value for name, value in _not_default(sampler).items() if name != "kind"}
    if sampler.kind == "truncated":
        return {"sample": "True", **changed}
    return {"sampler": sampler.kind, **{f"sampler.{name}": value for name, value in changed.items()}}


def _not_default(section: Any) -> dict[str, str]:
    """The fields of a section that are not at their default."""
    fields = {f.name: (getattr(section, f.name), f.default) for f in dataclasses.fields(section)}
    return {name: str(value) for name, (value, default) in fields.items() if value != default}
