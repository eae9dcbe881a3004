"""Chooses the setting of a run on a cluster, and estimates its time there."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from configs import RunConfig
from configs.components.training import ALL_STAGES
from model import flops
from model.flops import BatchShape
from zeromt.planning.corpus import Corpus
from zeromt.planning.costs.communication import communication_volume, num_collectives, round_trip
from zeromt.planning.costs.memory import Memory, MemoryModel, Setting, settings, usable_memory
from zeromt.planning.costs.model_states import ELEMENT, FLOAT
from zeromt.planning.hardware import Cluster
from zeromt.planning.trajectory import MicroBatches, split_update

BACKWARD = 2 / 3
"""Of a pass's FLOPs, those of its way back."""
PCIE_BANDWIDTH = 25e9
"""Bytes per second between a GPU and its host, one way: PCIe 4.0 x16 in practice."""
HOST_BANDWIDTH = 20e9
"""Bytes per second of host memory that the AdamW of one rank reaches if the optimizer is offloaded."""
ADAM_BYTES = 28
"""Bytes that AdamW reads and writes per fp32 element: it reads four tensors and writes three."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Step:
    """The time of one update and what it consists of, in seconds unless stated otherwise."""

    flops: float
    """FLOPs of one micro-batch."""
    compute: float
    """Forward and backward passes: their FLOPs over the peak times the MFU."""
    communication: float
    """Sending the bytes. At stage 3 and with `overlap_comm` it overlaps with the computation, and at stages 1 and 2 the
    reduction with the backward passes that it is for."""
    latency: float
    """Round trips of the collectives, in addition to `communication`."""
    offload: float
    """Copies to the host, and AdamW there."""
    sent: float
    """Bytes that each rank sends."""
    seconds: float
    """The whole update."""
    tokens: float
    """Number of target tokens without padding."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Estimate:
    """The plan of a run on a cluster."""

    cluster: Cluster
    micro_batches: MicroBatches
    memory: Memory
    step: Step
    checkpoint_bytes: int
    updates: float
    tokens_per_second: float
    days: float
    """Duration, without evaluations, saves and failures."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Option:
    """A setting with the micro-batches of a plan."""

    memory: Memory
    fits: bool
    largest: int
    """Target tokens of the largest micro-batch that fits."""
    step: Step


class Planner:
    """Plans the run of one configuration on clusters of any size."""

    def __init__(self, config: RunConfig, corpus: Corpus, *, precision: str, padding: float) -> None:
        """Plan a run.

        Args:
            config: the run's.
            corpus: sizes of its data.
            precision: of its training.
            padding: fraction of a micro-batch's tokens that are padding.
        """
        self.config, self.corpus, self.precision, self.padding = config, corpus, precision, padding
        self.model = MemoryModel(config, corpus.vocabularies, precision=precision)
        self.longest = config.prepare.max_pieces + 1
        self._flops: dict[tuple[bool, BatchShape], dict[str, int]] = {}  # the same at every stage

    def choose(self, cluster: Cluster) -> tuple[MicroBatches, Memory] | None:
        """The fastest setting that fits with the configured micro-batches, or with smaller ones if none does.

        Offload and checkpointing are chosen only if nothing fits without them, since they cost time. Of equally fast
        stages, the lowest is chosen.
        """
        budget, world_size = usable_memory(cluster.gpu_memory), cluster.num_gpus
        checkpointing = self.config.model.activation_checkpointing
        candidates = list(settings(self.config.engine, self.config.optimizer, checkpointing=checkpointing))
        configured = split_update(self.config.stream, world_size, most=1 << 62, longest=self.longest)
        assert configured is not None
        if (memory := self._fastest(candidates, configured, cluster)) is not None:
            return configured, memory
        best = max(candidates, key=lambda s: self.model.largest_micro_batch(s, world_size=world_size, budget=budget))
        most = self.model.largest_micro_batch(best, world_size=world_size, budget=budget)
        smaller = split_update(self.config.stream, world_size, most=most, longest=self.longest)
        if smaller is None:
            return None
        return smaller, self._fastest(candidates, smaller, cluster) or self.memory(best, smaller, world_size)

    def _fastest(self, candidates: Sequence[Setting], micro_batches: MicroBatches, cluster: Cluster) -> Memory | None:
        """The stage with the shortest step, in the first group of candidates with equal offload and checkpointing that
        contains one that fits; None if none fits.
        """
        for _, stages in itertools.groupby(candidates, key=lambda s: (s.offload, s.checkpointing)):
            memories = [self.memory(setting, micro_batches, cluster.num_gpus) for setting in stages]
            if fitting := [memory for memory in memories if memory.peak <= usable_memory(cluster.gpu_memory)]:
                return min(fitting, key=lambda m: self.step(m.setting, micro_batches, cluster).seconds)
        return None

    def memory(self, setting: Setting, micro_batches: MicroBatches, world_size: int) -> Memory:
        """Memory of one rank with these micro-batches."""
        return self.model.memory(
            setting,
            world_size=world_size,
            source_tokens=micro_batches.source_tokens,
            target_tokens=micro_batches.target_tokens,
        )

    def estimate(self, cluster: Cluster) -> Estimate | None:
        """The plan for a cluster; None if not even a micro-batch with only the longest pair fits."""
        chosen = self.choose(cluster)
        if chosen is None:
            return None
        micro_batches, memory = chosen
        step = self.step(memory.setting, micro_batches, cluster)
        # if updates are larger than configured, fewer of them give the same number of tokens
        stream = self.config.stream
        smaller = min(1.0, stream.micro_batches * stream.target_tokens / micro_batches.update_tokens)
        updates = self.config.training.max_updates * smaller
        return Estimate(
            cluster=cluster,
            micro_batches=micro_batches,
            memory=memory,
            step=step,
            checkpoint_bytes=self.model.checkpoint_bytes,
            updates=updates,
            tokens_per_second=step.tokens / step.seconds,
            days=updates * step.seconds / 86_400,
        )

    def options(self, estimate: Estimate) -> list[Option]:
        """Every ZeRO stage at which the optimizer is sound, with and without activation checkpointing and offload."""
        cluster, budget = estimate.cluster, usable_memory(estimate.cluster.gpu_memory)
        found = []
        for offload, checkpointing, stage in itertools.product((False, True), (False, True), ALL_STAGES):
            if (offload and stage == 0) or self.config.optimizer.stage_problem(stage, offload=offload) is not None:
                continue
            setting = Setting(stage=stage, offload=offload, checkpointing=checkpointing)
            memory = self.memory(setting, estimate.micro_batches, cluster.num_gpus)
            largest = self.model.largest_micro_batch(setting, world_size=cluster.num_gpus, budget=budget)
            step = self.step(setting, estimate.micro_batches, cluster)
            found.append(Option(memory=memory, fits=memory.peak <= budget, largest=largest, step=step))
        return found

    def shape(self, micro_batches: MicroBatches) -> BatchShape:
        """The shape of a micro-batch in which all sentences have the average length."""
        lengths = [
            max(1, round(length / (1 - self.padding)))
            for length in (self.corpus.source_length, self.corpus.target_length)
        ]
        rows = min(micro_batches.source_tokens // lengths[0], micro_batches.target_tokens // lengths[1])
        return BatchShape(rows=max(1, min(rows, self.config.stream.max_rows)), source=lengths[0], target=lengths[1])

    def flops(self, setting: Setting, shape: BatchShape) -> dict[str, int]:
        """FLOPs of the forward and backward pass of a micro-batch, by part of the model."""
        key = setting.checkpointing, shape
        if key not in self._flops:
            section = self.model.section(setting)
            self._flops[key] = flops.executed_flops(section, self.config.loss, self.corpus.vocabularies, shape)
        return self._flops[key]

    def step(self, setting: Setting, micro_batches: MicroBatches, cluster: Cluster) -> Step:
        """The time of one update."""
        shape = self.shape(micro_batches)
        once = sum(self.flops(setting, shape).values())
        compute = micro_batches.slots * once / (cluster.peak_flops * cluster.mfu)
        world_size = cluster.num_gpus
        volume = communication_volume(self.model, setting, world_size=world_size, num_slots=micro_batches.slots)
        sent = volume.sent(world_size)
        communication = sent / cluster.bandwidth
        latency = 0.0
        if world_size > 1:
            trip = round_trip(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node)
            latency = trip * num_collectives(self.model.layout(setting, world_size), num_slots=micro_batches.slots)
        offload = 0.0
        if setting.offload:
            own = self.model.num_trained / world_size
            copies = (FLOAT + ELEMENT[self.precision]) / PCIE_BANDWIDTH
            offload = own * (copies + ADAM_BYTES / HOST_BANDWIDTH)
        # DeepSpeed's default is to overlap at stage 3 only
        is_overlapped = self.config.engine.zero_optimization.get("overlap_comm", setting.stage == 3)
        sending = communication + latency
        seconds = max(compute, sending) if is_overlapped else compute + sending
        if sent and self.model.layout(setting, world_size).reduces_in_buckets:
            reducing = sending * volume.scattered / (volume.scattered + volume.gathered)
            seconds -= min(reducing, BACKWARD * compute / (1 if setting.stage == 2 else micro_batches.slots))
        return Step(
            flops=once,
            compute=compute,
            communication=communication,
            latency=latency,
            offload=offload,
            sent=sent,
            seconds=seconds + offload,
            tokens=micro_batches.number * shape.rows * min(self.corpus.target_length, shape.target),
        )
