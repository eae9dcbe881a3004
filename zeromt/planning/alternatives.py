"""Alternatives to a plan: other settings on the same GPUs, and other numbers of GPUs for the same run."""

from dataclasses import dataclass
from typing import Any

from configs import RunConfig
from configs.components.training import ALL_STAGES
from zeromt.planning.costs.memory import Memory, Setting, usable_memory
from zeromt.planning.estimate import Estimate, Planner, Step
from zeromt.planning.hardware import Cluster
from zeromt.planning.trajectory import MicroBatches, split_update

FACTORS = (0.25, 0.5, 1, 2, 4)
"""The numbers of GPUs to compare, as multiples of the cluster's."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Alternative:
    """Another setting with the micro-batches of the plan."""

    memory: Memory
    fits: bool
    largest: int
    """Target tokens of the largest micro-batch that fits."""
    step: Step


def alternatives(planner: Planner, estimate: Estimate) -> list[Alternative]:
    """Every ZeRO stage at which the optimizer is sound, with and without activation checkpointing and offload."""
    cluster, budget = estimate.cluster, usable_memory(estimate.cluster.gpu_memory)
    choices = []
    for offload in (False, True):
        for checkpointing in (False, True):
            for stage in ALL_STAGES if not offload else (1, 2, 3):
                if planner.config.optimizer.stage_problem(stage, offload=offload) is not None:
                    continue
                setting = Setting(stage=stage, offload=offload, checkpointing=checkpointing)
                memory = planner.memory(setting, estimate.micro_batches, cluster.num_gpus)
                largest = planner.model.largest_micro_batch(setting, world_size=cluster.num_gpus, budget=budget)
                step = planner.step(setting, estimate.micro_batches, cluster)
                choices.append(Alternative(memory=memory, fits=memory.peak <= budget, largest=largest, step=step))
    return choices


@dataclass(kw_only=True, slots=True, frozen=True)
class Advice:
    """The best plans among the compared numbers of GPUs."""

    cheapest: Estimate
    """The plan with the fewest GPU hours; of several, the one with the fewest GPUs."""
    fastest: Estimate
    """The plan with the fewest days."""


def advice(planner: Planner, estimate: Estimate) -> Advice:
    """Compare the plan with plans for other numbers of GPUs."""
    cluster = estimate.cluster
    plans = [estimate if n == cluster.num_gpus else planner.estimate(cluster.resized(n)) for n in _numbers(cluster)]
    fitting = [plan for plan in plans if plan is not None]
    return Advice(cheapest=min(fitting, key=lambda e: e.gpu_hours), fastest=min(fitting, key=lambda e: e.days))


def other_numbers(planner: Planner, estimate: Estimate) -> list[tuple[int, MicroBatches | None]]:
    """How fewer and more GPUs split an update with the plan's setting; None if it does not fit."""
    cluster, stream = estimate.cluster, planner.config.stream
    budget, setting = usable_memory(cluster.gpu_memory), estimate.memory.setting
    splits = []
    for number in _numbers(cluster):
        most = planner.model.largest_micro_batch(setting, world_size=number, budget=budget)
        splits.append((number, split_update(stream, number, most=most, longest=planner.longest)))
    return splits


def _numbers(cluster: Cluster) -> list[int]:
    """The numbers of GPUs to compare, in ascending order; the cluster's own is one of them."""
    return sorted({max(1, int(cluster.num_gpus * factor)) for factor in FACTORS})


def changes(config: RunConfig, estimate: Estimate) -> dict[str, Any]:
    """The fields that the plan sets differently from the configuration, with their new values, by dotted keys."""
    setting, micro_batches = estimate.memory.setting, estimate.micro_batches
    engine, stream = config.engine, config.stream
    values = {
        "engine.zero_stage": (engine.zero_stage, setting.stage),
        "engine.offload_optimizer": (engine.offload_optimizer, setting.offload),
        "model.activation_checkpointing": (config.model.activation_checkpointing, setting.checkpointing),
        "stream.micro_batches": (stream.micro_batches, micro_batches.number),
        "stream.source_tokens": (stream.source_tokens, micro_batches.source_tokens),
        "stream.target_tokens": (stream.target_tokens, micro_batches.target_tokens),
        "checkpoint.every_updates": (config.checkpoint.every_updates, estimate.saving.updates),
    }
    return {key: now for key, (before, now) in values.items() if now != before}
