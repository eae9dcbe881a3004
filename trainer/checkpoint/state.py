"""What a trainer remembers from update to update and stores in its checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer.runs.history import SkippedRange, read_ranges


@dataclass(kw_only=True, slots=True, frozen=True)
class PhaseState:
    """The phase that a run is in, and where that began."""

    number: int
    """From 0."""
    name: str
    step: int
    """Updates done before it."""
    epoch: int
    """Its first."""
    applied: int
    """Applied updates before it, from which a schedule of its own counts."""


@dataclass(kw_only=True, slots=True)
class TrainerState:
    """Everything that the trainer itself remembers."""

    step: int = 0
    """Updates done, skipped ones included."""
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    target_tokens: int = 0
    """Of updates done, skipped ones included."""
    lr: float = 0.0
    """The learning rate of the last update."""
    newest_loss: float = 0.0
    """The loss of the last update, applied or skipped, by the weights before it."""
    seconds: float = 0.0
    """Seconds of wall time in the loop, over all restarts."""
    schedule_start: int = 0
    """Number of applied updates when optimizer and learning rate were last reset."""
    start_step: int = 0
    """Where limits are counted from: step, target tokens, seconds and epoch of the last `--reset`."""
    start_tokens: int = 0
    start_seconds: float = 0.0
    start_epoch: int = 0
    fp16: dict[str, float] = field(default_factory=dict)
    """See `DeepSpeedEngine.fp16_state`."""
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    """Comparable scores by figure of an evaluation and by step: see `trainer.evaluation.scores`."""
    unplanned: list[int] = field(default_factory=list)
    """Steps that were evaluated only because a start ended there."""
    measured: dict[str, str] = field(default_factory=dict)
    """By figure, a hash of what its scores are measured with."""
    best_by: str = "bleu"
    """The figure that decides which step is best."""
    lowest_is_best: bool = False
    """Of that figure."""
    series_start: int = 0
    """Step at which what decides was last measured otherwise than before."""
    recent_losses: list[float] = field(default_factory=list)
    """The losses of the last updates, for spike detection."""
    skipped_ranges: list[SkippedRange] = field(default_factory=list)
    """(epoch, first update, last update) to skip, one entry per rewind."""
    phase: PhaseState | None = None
    """None in a run without phases."""

    def note_outcome(self, *, applied: bool) -> None:
        """Count an update among the skipped ones, if it was not applied."""
        self.skipped_updates += not applied
        self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1

    def note(self, step: int, figures: Mapping[str, float]) -> None:
        """Remember the figures of a step's evaluation, by name."""
        for name in figures.keys() & self.scores.keys():
            self.scores[name][step] = figures[name]

    @property
    def best_scores(self) -> dict[int, float]:
        """The scores that decide which step is best."""
        return self.scores.get(self.best_by, {})

    def planned_scores(self, figure: str, *, after: int) -> dict[int, float]:
        """A figure's scores of later steps that a run has wherever its starts ended."""
        return {s: x for s, x in self.scores.get(figure, {}).items() if s > after and s not in self.unplanned}

    @property
    def is_scored(self) -> bool:
        """Whether this step has been evaluated."""
        return self.step in self.scores.get("nll", {})  # of queued metrics rank 0 alone knows

    def problem(self) -> str | None:
        """Why a run that ends with this step has not finished: a loss that is not finite; None if it has."""
        validation = self.scores.get("loss", {}).get(self.step, 0.0)
        losses = {"the loss of its update": self.newest_loss, "the validation loss": validation}
        wrong = [f"{what} is {loss}" for what, loss in losses.items() if not math.isfinite(loss)]
        return next(iter(wrong), None)

    def signed_scores(self) -> dict[int, float]:
        """The scores by step, signed so that the highest is best; those that are not finite are omitted."""
        sign = -1 if self.lowest_is_best else 1
        return {step: sign * score for step, score in self.best_scores.items() if math.isfinite(score)}

    def phase_figures(self) -> dict[str, Any]:
        """What a line of metrics.jsonl says of the phase; nothing in a run without."""
        return {} if self.phase is None else {"phase": self.phase.name, "phase_number": self.phase.number + 1}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "TrainerState":
        """Read what `to_json` gave."""
        scores = tree["scores"].items()
        return cls(
            **{
                **tree,
                "scores": {figure: {int(step): score for step, score in of.items()} for figure, of in scores},
                "phase": None if tree["phase"] is None else PhaseState(**tree["phase"]),
                "skipped_ranges": read_ranges(tree["skipped_ranges"]),
            }
        )
