"""When the phases of a run begin, as far as that can be known beforehand."""

from dataclasses import dataclass

from zeromt.planning.estimate import Estimate, Planner


@dataclass(kw_only=True, slots=True, frozen=True)
class PlannedPhase:
    """A phase in a plan."""

    name: str
    until: str
    """When it ends, in words."""
    datasets: tuple[str, ...]
    first: int | None
    """Number of updates before it; None after a phase whose length is not known."""
    updates: int | None
    """Number of its updates; None if it ends at a plateau, or if its datasets are not prepared."""


def planned_phases(planner: Planner, estimate: Estimate) -> list[PlannedPhase]:
    """The phases of a run; empty if it has none.

    Args:
        planner: the run's planner.
        estimate: the plan, which gives the tokens of an update.
    """
    config, first = planner.config, 0 if planner.config.phases else None
    phases = []
    for phase, stream in zip(config.phases, config.streams, strict=False):
        paths = tuple(source.path for source in stream.datasets) or (config.prepare.output,)
        left = None if first is None else max(0, round(estimate.updates) - first)
        updates, until = left, "the end of the run"
        if phase.until is not None:
            until, updates = phase.until.describe(), phase.until.updates
            tokens = [planner.corpus.dataset_tokens.get(path) for path in paths]
            if phase.until.passes is not None and None not in tokens:
                updates = round(phase.until.passes * sum(n or 0 for n in tokens) / estimate.step.tokens)
        if updates is not None and left is not None:
            updates = min(updates, left)
        phases.append(PlannedPhase(name=phase.name, until=until, datasets=paths, first=first, updates=updates))
        first = None if first is None or updates is None else first + updates
    return phases
