"""What else could be chosen: other settings on the same GPUs, other numbers of GPUs for the same run."""

from dataclasses import dataclass

from launcher.planning.costs.memory import Memory, Setting, usable
from launcher.planning.estimate import Estimate, Planner, Step
from launcher.planning.hardware import Cluster
from launcher.planning.trajectory import MicroBatches, cut

FACTORS = (0.25, 0.5, 1, 2, 4)
"""Numbers of GPUs that are looked at, in those of the cluster."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Alternative:
    """A setting with the micro-batches that were chosen."""

    memory: Memory
    fits: bool
    largest: int
    """Target tokens of the largest micro-batch that would fit."""
    step: Step


def alternatives(planner: Planner, estimate: Estimate) -> list[Alternative]:
    """All stages, with checkpointing and without, with offload and without."""
    cluster, budget = estimate.cluster, usable(estimate.cluster.gpu_memory)
    found = []
    for offload in (False, True):
        for checkpointing in (False, True):
            for stage in (0, 1, 2, 3) if not offload else (1, 2, 3):
                setting = Setting(stage=stage, offload=offload, checkpointing=checkpointing)
                memory = planner.memory(setting, estimate.micro_batches, cluster.num_gpus)
                largest = planner.model.largest(setting, world_size=cluster.num_gpus, budget=budget)
                step = planner.step(setting, estimate.micro_batches, cluster)
                found.append(Alternative(memory=memory, fits=memory.peak <= budget, largest=largest, step=step))
    return found


@dataclass(kw_only=True, slots=True, frozen=True)
class Advice:
    """The plans that are best in one respect, of the numbers of GPUs that are looked at."""

    cheapest: Estimate
    """Fewest GPU hours; of equals, the fewest GPUs."""
    fastest: Estimate
    """Fewest days."""


def advice(planner: Planner, estimate: Estimate) -> Advice:
    """Which numbers of GPUs to think about, beside the one that was asked for."""
    cluster = estimate.cluster
    plans = [estimate if n == cluster.num_gpus else planner.estimate(cluster.resized(n)) for n in _numbers(cluster)]
    found = [plan for plan in plans if plan is not None]
    return Advice(cheapest=min(found, key=lambda e: e.gpu_hours), fastest=min(found, key=lambda e: e.days))


def other_numbers(planner: Planner, estimate: Estimate) -> list[tuple[int, MicroBatches | None]]:
    """How an update is cut on fewer and on more GPUs, with the setting that was chosen; None: it does not fit."""
    cluster, stream = estimate.cluster, planner.config.stream
    budget, setting = usable(cluster.gpu_memory), estimate.memory.setting
    found = []
    for number in _numbers(cluster):
        most = planner.model.largest(setting, world_size=number, budget=budget)
        found.append((number, cut(stream, number, most=most, longest=planner.longest)))
    return found


def _numbers(cluster: Cluster) -> list[int]:
    """Of GPUs that are looked at, that of the cluster among them; ascending."""
    return sorted({max(1, int(cluster.num_gpus * factor)) for factor in FACTORS})
