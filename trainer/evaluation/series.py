"""Which scores may be compared: for each figure, one hash of what it was measured with.

Text and languages of the validation sets, the metric's signature, the search, the model's tokenizer, and whether the
weights or their moving average were scored. The number format, the size of batches and the number of ranks are not part
of it: they change a score by less than its noise.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence

from configs import RunConfig
from configs.components.training import OF_REFERENCES
from configs.languages import language
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.state import TrainerState
from trainer.datasets import tokenizer_of
from trainer.evaluation.sets import HeldOutSet

log = logging.getLogger(__name__)


def enter_series(
    config: RunConfig, datasets: Sequence[Dataset], held_out: Sequence[HeldOutSet], state: TrainerState
) -> dict[str, str] | None:
    """Leave a state the scores that were measured as this run's are; returns an event if what is best goes by others.

    Args:
        config: the run's.
        datasets: the run's.
        held_out: the sets that are scored; their order and names do not matter.
        state: from the checkpoint, or of a new run; changed in place.
    """
    now, best_by = measured(config, held_out, tokenizer_of(datasets).fingerprint), config.best_by
    left = state.measured.get(state.best_by) if state.best_scores else None
    is_same = {figure: state.measured.get(figure) == digest for figure, digest in now.items()}
    state.scores = {figure: state.scores.get(figure, {}) if same else {} for figure, same in is_same.items()}
    state.measured, state.best_by, state.lowest_is_best = now, best_by, not config.evaluation.directions[best_by]
    if left in (None, now[best_by]):
        return None
    state.series_start = state.step
    known = f"{len(state.best_scores)} scores are known" if state.best_scores else "it begins without scores"
    reason = f"what is best goes by {best_by} as it is measured now, and not by the scores so far: {known}"
    log.warning("%s", reason)
    return {"event": "score_series", "series": now[best_by], "reason": reason}


def measured(config: RunConfig, held_out: Sequence[HeldOutSet], tokenizer: str) -> dict[str, str]:
    """By figure, a hash of what this run's scores are measured with; for the arguments see `enter_series`."""
    section, sets = config.evaluation, [one for one in held_out if one.role == "validation"]
    alike = [sorted(_content(one, section.max_pairs) for one in sets), tokenizer, config.training.ema_decay > 0]
    search = {name: value for name, value in dataclasses.asdict(section.search).items() if name != "batch_tokens"}
    signatures = {one.name: one.signature for one in section.queued} | {"loss": config.loss.signature()}
    signatures |= {m.key(): str(sorted({one.scorer.signatures[m.key()] for one in sets})) for m in section.metrics}
    found = {}
    for figure in section.directions:
        of_figure = [figure, signatures.get(figure), None if figure in OF_REFERENCES else search]
        found[figure] = hashlib.sha256(json.dumps([*alike, *of_figure], default=str).encode()).hexdigest()[:12]
    return found


def _content(held_out: HeldOutSet, max_pairs: int | None) -> str:
    """A set's languages and the lines that are scored."""
    codes = [dataclasses.astuple(language(code)) for code in held_out.languages]
    lines = (held_out.sources, *held_out.references)
    return json.dumps([codes, *(list(column[:max_pairs]) for column in lines)])
