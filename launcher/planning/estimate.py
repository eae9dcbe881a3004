"""Time, money and energy of a run on a cluster, and the setting that it takes there."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from configs import RunConfig
from launcher.planning import goodput
from launcher.planning.corpus import Corpus
from launcher.planning.costs.communication import volume
from launcher.planning.costs.latency import LAUNCH, num_collectives, num_kernels, round_trip
from launcher.planning.costs.memory import Memory, MemoryModel, Setting, settings, usable
from launcher.planning.costs.model_states import ELEMENT, FLOAT, num_moments
from launcher.planning.goodput import Failures
from launcher.planning.hardware import Cluster
from launcher.planning.trajectory import MicroBatches, cut
from model.costs import flops
from model.costs.flops import BatchShape

PCIE_BANDWIDTH = 25e9
"""Bytes a second between a GPU and its host, one way: PCIe 4.0 x16 in practice."""
HOST_BANDWIDTH = 20e9
"""Bytes a second of host memory that one rank's AdamW reaches, where the optimizer is offloaded."""
ADAM_BYTES = 28
"""That AdamW reads and writes for each element in fp32: four tensors in, three out."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Prices:
    """What is paid, and for how long."""

    gpu_hour: float | None
    kwh: float | None
    watts: float
    """Of one GPU while it trains."""
    tokens: float | None
    """Target tokens to train on; where None, `epochs`, and where that is None too, `training.max_updates`."""
    epochs: float | None
    padding: float
    """Fraction of a micro-batch's tokens that are padding."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Step:
    """One update."""

    flops: float
    """Of one micro-batch."""
    compute: float
    """Seconds of matmuls on the device."""
    launching: float
    """Seconds that the host takes to launch an update's kernels; the longer of this and the compute counts."""
    communication: float
    """Seconds, of which at stage 3, or with `overlap_comm`, the compute hides what it can."""
    latency: float
    """Seconds of the collectives' round trips, which come to that."""
    offload: float
    """Seconds of copies to the host and of AdamW there."""
    sent: float
    """Bytes that each rank sends."""
    seconds: float
    tokens: float
    """Target tokens without padding."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Saving:
    """Checkpoints."""

    bytes: int
    write: float
    """Seconds until a save is complete."""
    stop: float
    """Seconds that the training stands still for it."""
    interval: float
    """Seconds between saves."""
    young: float
    updates: int
    """Updates between saves."""
    goodput: float
    mtbf: float


@dataclass(kw_only=True, slots=True, frozen=True)
class Estimate:
    """A run on so many GPUs."""

    cluster: Cluster
    micro_batches: MicroBatches
    memory: Memory
    step: Step
    saving: Saving
    updates: float
    tokens_per_second: float
    days: float
    """With failures."""
    gpu_hours: float
    cost: float | None
    energy: float
    """kWh of the GPUs alone."""
    energy_cost: float | None


class Planner:
    """Plans one configuration for clusters of any size."""

    def __init__(self, config: RunConfig, corpus: Corpus, prices: Prices, *, precision: str) -> None:
        self.config, self.corpus, self.prices, self.precision = config, corpus, prices, precision
        self.model = MemoryModel(config, corpus.vocabularies, precision=precision)
        self.longest = config.prepare.max_pieces + 1
        self._flops: dict[tuple[bool, BatchShape], dict[str, int]] = {}  # the same at every stage

    def choose(self, cluster: Cluster) -> tuple[MicroBatches, Memory] | None:
        """The quickest setting that holds the configuration's micro-batches, or smaller ones where none does.

        Stages without offload and checkpointing come first, which only take time; of equals the lowest stage.
        """
        budget, world_size = usable(cluster.gpu_memory), cluster.num_gpus
        candidates = list(settings(self.config.engine, checkpointing=self.config.model.activation_checkpointing))
        configured = cut(self.config.stream, world_size, most=1 << 62, longest=self.longest)
        assert configured is not None
        if (memory := self._quickest(candidates, configured, cluster)) is not None:
            return configured, memory
        best = max(candidates, key=lambda s: self.model.largest(s, world_size=world_size, budget=budget))
        most = self.model.largest(best, world_size=world_size, budget=budget)
        smaller = cut(self.config.stream, world_size, most=most, longest=self.longest)
        if smaller is None:
            return None
        return smaller, self._quickest(candidates, smaller, cluster) or self.memory(best, smaller, world_size)

    def _quickest(self, candidates: Sequence[Setting], micro_batches: MicroBatches, cluster: Cluster) -> Memory | None:
        """Of the first of the candidates that fit and differ in the stage alone, the one with the shortest step."""
        for _, stages in itertools.groupby(candidates, key=lambda s: (s.offload, s.checkpointing)):
            memories = [self.memory(setting, micro_batches, cluster.num_gpus) for setting in stages]
            if fitting := [memory for memory in memories if memory.peak <= usable(cluster.gpu_memory)]:
                return min(fitting, key=lambda m: self.step(m.setting, micro_batches, cluster).seconds)
        return None

    def memory(self, setting: Setting, micro_batches: MicroBatches, world_size: int) -> Memory:
        """Of one rank with these micro-batches."""
        return self.model.memory(
            setting,
            world_size=world_size,
            source_tokens=micro_batches.source_tokens,
            target_tokens=micro_batches.target_tokens,
        )

    def estimate(self, cluster: Cluster) -> Estimate | None:
        """The run on a cluster; None where not even its longest pair fits."""
        chosen = self.choose(cluster)
        if chosen is None:
            return None
        micro_batches, memory = chosen
        step = self.step(memory.setting, micro_batches, cluster)
        saving = self.saving(cluster, step)
        updates = self._num_updates(step, micro_batches)
        hours = updates * step.seconds / max(saving.goodput, 1e-12) / 3600
        energy = hours * cluster.num_gpus * self.prices.watts / 1000
        return Estimate(
            cluster=cluster,
            micro_batches=micro_batches,
            memory=memory,
            step=step,
            saving=saving,
            updates=updates,
            tokens_per_second=step.tokens / step.seconds,
            days=hours / 24,
            gpu_hours=hours * cluster.num_gpus,
            cost=None if self.prices.gpu_hour is None else hours * cluster.num_gpus * self.prices.gpu_hour,
            energy=energy,
            energy_cost=None if self.prices.kwh is None else energy * self.prices.kwh,
        )

    def shape(self, micro_batches: MicroBatches) -> BatchShape:
        """A micro-batch of sentences of average length."""
        lengths = [
            max(1, round(length / (1 - self.prices.padding)))
            for length in (self.corpus.source_length, self.corpus.target_length)
        ]
        rows = min(micro_batches.source_tokens // lengths[0], micro_batches.target_tokens // lengths[1])
        return BatchShape(rows=max(1, min(rows, self.config.stream.max_rows)), source=lengths[0], target=lengths[1])

    def flops(self, setting: Setting, shape: BatchShape) -> dict[str, int]:
        """Of forward and backward, by part."""
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
        sent = volume(self.model, setting, world_size=world_size, num_slots=micro_batches.slots).sent(world_size)
        communication = sent / cluster.bandwidth
        launching = LAUNCH * num_kernels(self.model, setting, num_slots=micro_batches.slots)
        latency = 0.0
        if world_size > 1:
            trip = round_trip(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node)
            layout = self.model.layout(setting, world_size)
            latency = trip * num_collectives(layout, num_slots=micro_batches.slots)
        offload = 0.0
        if setting.offload:
            own = self.model.num_parameters / world_size
            copies = (FLOAT + ELEMENT[self.precision]) / PCIE_BANDWIDTH
            offload = own * (copies + ADAM_BYTES / HOST_BANDWIDTH)
        # DeepSpeed's own default
        is_overlapped = self.config.engine.zero_optimization.get("overlap_comm", setting.stage == 3)
        busy, sending = max(compute, launching), communication + latency
        seconds = max(busy, sending) if is_overlapped else busy + sending
        return Step(
            flops=once,
            compute=compute,
            launching=launching,
            communication=communication,
            latency=latency,
            offload=offload,
            sent=sent,
            seconds=seconds + offload,
            tokens=micro_batches.number * shape.rows * min(self.corpus.target_length, shape.target),
        )

    def saving(self, cluster: Cluster, step: Step) -> Saving:
        """How large checkpoints are, and how often to write them.

        A save in the background stops the training while the states are gathered and copied to the host; a failure
        before it is written costs the time that it took beside the work since.
        """
        numbers = 1 + num_moments(self.config)
        size = FLOAT * numbers * self.model.num_parameters
        write = size / cluster.storage_bandwidth
        gather = size / cluster.bandwidth if cluster.num_gpus > 1 else 0.0
        stop = gather + size / cluster.num_gpus / PCIE_BANDWIDTH
        is_asynchronous = self.config.checkpoint.asynchronous
        # reading is as fast as writing
        restart = cluster.restart + write + (write if is_asynchronous else 0.0)
        failures = Failures(mtbf=cluster.mtbf, save=stop if is_asynchronous else gather + write, restart=restart)
        # a save must end before the next begins
        interval = max(goodput.daly(failures), write, step.seconds)
        updates = max(1, math.ceil(write / step.seconds), round(interval / step.seconds))
        return Saving(
            bytes=size,
            write=write,
            stop=failures.save,
            interval=interval,
            young=goodput.young(failures),
            updates=updates,
            goodput=goodput.goodput(updates * step.seconds, failures),
            mtbf=failures.mtbf,
        )

    def _num_updates(self, step: Step, micro_batches: MicroBatches) -> float:
        tokens = self.prices.tokens
        if tokens is None and self.prices.epochs is not None:
            assert self.corpus.epoch_tokens is not None
            tokens = self.prices.epochs * self.corpus.epoch_tokens
        if tokens is not None:
            return tokens / step.tokens
        # as many tokens as the configured updates have, where an update has grown
        stream = self.config.stream
        configured = stream.micro_batches * stream.target_tokens
        return self.config.training.max_updates * min(1.0, configured / micro_batches.update_tokens)
