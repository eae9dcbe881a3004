"""What the parts of a rank's training have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from configs import RunConfig
from trainer.checkpoint.state import TrainerState
from trainer.engines import Engine
from trainer.evaluation.queue import ScoreQueue
from trainer.lookahead import Lookahead
from trainer.ranks.activities import Activities
from trainer.ranks.distributed import World
from trainer.records.metrics import Metrics


@dataclass(kw_only=True, slots=True, frozen=True)
class RunContext:
    """Built once per start, and given to the loop and what works with it. The objects change, but are never replaced.

    Whatever needs one or two of these takes them alone.
    """

    config: RunConfig
    """As it is trained with: budgets that fit the memory are in it."""
    world: World
    engine: Engine
    updates: Lookahead
    state: TrainerState
    """What a checkpoint remembers of the trainer."""
    metrics: Metrics
    activities: Activities
    """With the ledger, on rank 0."""
    stop_requested: Callable[[], bool]
    """Whether this rank was asked to stop."""
    queue: ScoreQueue | None = None
    """Scores that come late; None on every rank but the first, and where there are none."""
