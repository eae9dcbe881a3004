"""`zeromt plan`: parameters, FLOPs, memory and time of a run, estimated from its configuration alone."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from configs import RunConfig, UserError, load_run
from configs.process.files import is_file, naming
from configs.process.files.inside import read_json
from configs.process.text import to_json
from model.flops import BatchShape, Vocabularies, by_part, executed_flops
from model.gpus import GPUS
from zeromt.planning.memory import FLOAT, Memory, MemoryModel, Setting, settings, usable_memory

ASSUMED_LENGTH, PADDING = 32, 0.1
"""Tokens of a sentence if no prepared dataset exists, and the fraction of a micro-batch's tokens that are padding."""
MFU = 0.2
"""Fraction of the peak that a rank reaches while it computes, between base and big on one H100."""
HOST_SECONDS = 4.5e-3
"""Time that the host takes to launch one layer's kernels, forward and backward, with its part of the step: what one
H100 waited for with small micro-batches."""
INTER_BANDWIDTH = 50e9
"""Bytes a second from one node to others, one way, over all its network adapters."""
PCIE_BANDWIDTH, HOST_BANDWIDTH = 25e9, 20e9
"""Bytes a second between a GPU and its host, and of host memory for AdamW there."""
ADAM_BYTES = 28
"""Bytes that AdamW reads and writes for an element: it reads four tensors in fp32 and writes three."""
FASTER = 1.1
"""A stage is chosen over a lower one only if it is faster by this factor."""
GIB = 1 << 30


class Cluster(NamedTuple):
    """The cluster that a run is planned for."""

    nodes: int = 1
    gpus_per_node: int = 1
    gpu: str = "a100"
    gpu_memory: int | None = None
    """Bytes of one GPU; None: as the data sheet says."""
    mfu: float = MFU

    @property
    def num_gpus(self) -> int:
        """Number of GPUs, which is that of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def memory(self) -> int:
        """Bytes of one GPU."""
        return self.gpu_memory or GPUS[self.gpu].memory

    @property
    def bandwidth(self) -> float:
        """Bytes a second of a ring over all ranks; the slowest link limits it."""
        within = GPUS[self.gpu].intra_bandwidth
        return within if self.nodes == 1 else min(within, INTER_BANDWIDTH)


@dataclass(kw_only=True, slots=True, frozen=True)
class Option:
    """A setting, what it needs, and the time of an update."""

    setting: Setting
    memory: Memory
    fits: bool
    sent: float
    """Bytes that each rank sends in an update."""
    seconds: float


class Planner:
    """Plans a run on a cluster.

    Args:
        config: the run's.
        cluster: where it is to run.
        length: mean tokens of a sentence; None: the dataset's.

    Raises:
        UserError: the index of a dataset cannot be read, or a part of the model does not state its costs.
    """

    def __init__(self, config: RunConfig, cluster: Cluster, length: float | None = None) -> None:
        self.config, self.cluster = config, cluster
        self.precision = "bf16" if config.engine.precision == "auto" else config.engine.precision  # as on a GPU
        vocabularies, (source, target), self.assumptions = _corpus(config, length)
        self.model = MemoryModel(config, vocabularies, precision=self.precision)
        stream = config.stream
        self.slots = -(-stream.micro_batches // cluster.num_gpus)
        """Micro-batches of a rank in an update."""
        merges = config.engine.kernels != "plain" and len(config.datasets) == 1
        most = self.slots if config.engine.merge_lanes == "auto" else config.engine.merge_lanes
        self.passes = -(-self.slots // most) if merges else self.slots
        """Passes of a rank in an update."""
        lengths = [max(1, round(one / (1 - PADDING))) for one in (source, target)]
        rows = min(stream.source_tokens // lengths[0], stream.target_tokens // lengths[1], stream.max_rows)
        self.shape = BatchShape(rows=max(1, rows), source=lengths[0], target=lengths[1])
        self.update_tokens = stream.micro_batches * self.shape.rows * target
        """Target tokens of an update, without padding."""

    def flops(self, *, checkpointing: bool) -> dict[str, int]:
        """FLOPs of a micro-batch, forward and backward, by part of the model."""
        section = dataclasses.replace(self.config.model, activation_checkpointing=checkpointing)
        return executed_flops(section, self.config.loss, self.model.vocabularies, self.shape)

    def option(self, setting: Setting) -> Option:
        """A setting's costs."""
        cluster, stream = self.cluster, self.config.stream
        sizes = {"source_tokens": stream.source_tokens, "target_tokens": stream.target_tokens}
        memory = self.model.memory(setting, world_size=cluster.num_gpus, **sizes)
        peak = 1e12 * GPUS[cluster.gpu].tflops(self.precision)
        once = sum(self.flops(checkpointing=setting.checkpointing).values()) / (peak * cluster.mfu)
        layers = self.config.model.encoder_layers + self.config.model.decoder_layers
        busy = max(self.slots * once, self.passes * HOST_SECONDS * layers)
        stage = self.model.stage(setting)
        sent = self._sent(stage)
        sending = sent / cluster.bandwidth
        # from stage 1 on gradients are sent while others are computed
        seconds = busy + sending if stage == 0 else max(busy, sending)
        if setting.offload:
            copied = (FLOAT + self._element) / PCIE_BANDWIDTH + ADAM_BYTES / HOST_BANDWIDTH
            seconds += self.model.num_trained / cluster.num_gpus * copied
        fits = memory.peak <= usable_memory(cluster.memory)
        return Option(setting=setting, memory=memory, fits=fits, sent=sent, seconds=seconds)

    @property
    def _element(self) -> int:
        return FLOAT if self.precision == "fp32" else 2

    def _sent(self, stage: int) -> float:
        """Bytes that a rank sends in an update, in rings (Patarasuk and Yuan, 2009)."""
        gradients, weights = FLOAT * self.model.num_trained, self._element * self.model.num_parameters
        whole = {
            0: 2 * gradients,
            1: gradients + weights,
            2: self.slots * gradients + weights,
            3: self.slots * (gradients + 2 * weights),
        }[stage]
        return whole * (self.cluster.num_gpus - 1) / self.cluster.num_gpus

    def options(self) -> list[Option]:
        """Every stage with what the configuration asks for, then with checkpointing and offload, until one fits.

        Raises:
            UserError: none fits.
        """
        options: list[Option] = []
        for _, stages in itertools.groupby(settings(self.config), key=lambda one: (one.offload, one.checkpointing)):
            options += map(self.option, stages)
            if any(option.fits for option in options):
                return options
        memory = self.cluster.memory
        raise UserError(
            f"--gpu-memory: {memory / 1e9:g}GB ({max(usable_memory(memory), 0) / 1e9:.3g}GB for tensors) is too small "
            f"for micro-batches of {self.config.stream.target_tokens} tokens at any ZeRO stage on "
            f"{self.cluster.num_gpus} GPUs; lower stream.target_tokens, or use larger or more GPUs, or a smaller "
            "model"
        )

    def plan(self) -> dict[str, Any]:
        """All that is estimated, in bytes, seconds and FLOPs.

        Raises:
            UserError: see `options`.
        """
        options = self.options()
        fitting = [option for option in options if option.fits]
        quickest = min(option.seconds for option in fitting)
        chosen = next(option for option in fitting if option.seconds <= FASTER * quickest)
        updates = self.config.training.max_updates
        flops = self.flops(checkpointing=chosen.setting.checkpointing)
        return {
            "precision": self.precision,
            "num_gpus": self.cluster.num_gpus,
            "usable_memory": usable_memory(self.cluster.memory),
            "parameters": by_part(self.model.parameters),
            "trained": self.model.num_trained,
            "flops_per_target_token": {part: n / self.shape.target_tokens for part, n in flops.items()},
            "settings": [dataclasses.asdict(option) for option in options],
            "chosen": {
                **dataclasses.asdict(chosen),
                "tokens_per_second": self.update_tokens / chosen.seconds,
                "updates": updates,
                "days": updates * chosen.seconds / 86_400,
                "checkpoint_bytes": self.model.checkpoint_bytes,
            },
            "assumptions": [*self.assumptions, *self._assumed()],
        }

    def _assumed(self) -> Iterator[str]:
        shape, cluster, stream = self.shape, self.cluster, self.config.stream
        if cluster.num_gpus > stream.micro_batches:
            yield (
                f"{cluster.num_gpus - stream.micro_batches} GPUs idle: an update has {stream.micro_batches} "
                "micro-batches; set stream.micro_batches to a multiple of the number of GPUs, with smaller budgets"
            )
        yield f"sentences of {shape.source} source and {shape.target} target tokens, {PADDING:.0%} of them padding"
        yield (
            f"an MFU of {cluster.mfu:g} (--mfu) of {GPUS[cluster.gpu].tflops(self.precision):g} TFLOP/s; at least "
            f"{1000 * HOST_SECONDS:g} ms of the host per layer in each of {self.passes} passes, as with one H100"
        )
        yield f"rings of {cluster.bandwidth / 1e9:g} GB/s; without evaluations, saves, failures and waiting for data"
        yield "fused attention; 1 GiB outside torch's allocator and 5 % of the rest stay free"


def run(
    *,
    config: str,
    overrides: Sequence[str],
    plugins: Sequence[str],
    as_json: bool,
    length: float | None,
    **cluster: Any,
) -> int:
    """Plan a run and print the report.

    Args:
        config, overrides, plugins: of the run.
        as_json: print JSON.
        length: mean tokens of a sentence; None: the dataset's.
        cluster: fields of `Cluster`; None: their defaults.

    Raises:
        UserError: the configuration or an option is wrong, or the run does not fit into memory.
    """
    given = {name: value for name, value in cluster.items() if value is not None}
    if "gpu_memory" in given:
        given["gpu_memory"] = int(float(given["gpu_memory"].removesuffix("GB")) * 1e9)
    plan = Planner(load_run(config, overrides, plugins=plugins), Cluster(**given), length).plan()
    print(to_json(plan, indent=2) if as_json else "\n".join(to_lines(plan)), flush=True)
    return 0


def _corpus(config: RunConfig, length: float | None) -> tuple[Vocabularies, tuple[float, float], list[str]]:
    """Vocabularies, mean tokens of a source and of a target with EOS, and what had to be assumed.

    Raises:
        UserError: the index of a dataset cannot be read.
    """
    files = [Path(source.path) / "index.json" for source in config.datasets if "://" not in source.path]
    with naming("prepare.output"):
        existing = [file for file in files if is_file(file)]
    if not existing:
        section = config.prepare.tokenizer
        is_separate = section.vocabulary == "separate"
        target = (section.target_vocab_size or section.vocab_size) if is_separate else section.vocab_size
        assumed = f"no prepared dataset: vocabularies as prepare.tokenizer says, {length or ASSUMED_LENGTH:g} tokens"
        mean = length or float(ASSUMED_LENGTH)
        return Vocabularies(source=section.vocab_size, target=target), (mean, mean), [f"{assumed} a sentence"]
    try:
        index = read_json(existing[0])
        sizes = [int(index["tokenizer"][f"{side}_vocab_size"]) for side in ("source", "target")]
        means = [length or index[f"{side}_tokens"] / max(index["pairs"], 1) + 1 for side in ("source", "target")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"prepare.output: {existing[0]} cannot be read ({error!r}); give a prepared dataset") from error
    return Vocabularies(source=sizes[0], target=sizes[1]), (means[0], means[1]), [f"lengths as in {existing[0]}"]


def to_lines(plan: dict[str, Any]) -> Iterator[str]:
    """The plan as text."""
    chosen, flops = plan["chosen"], plan["flops_per_target_token"]
    yield f"{'model':26} {'parameters':>14} {'MFLOPs a target token, forward and backward':>44}"
    for part, size in plan["parameters"].items():
        yield f"  {part:24} {size:14,} {flops[part] / 1e6:44,.2f}"
    yield f"  {'total':24} {sum(plan['parameters'].values()):14,} {sum(flops.values()) / 1e6:44,.2f}"
    yield f"  {'trained':24} {plan['trained']:14,}"
    yield ""
    yield f"GiB of each of {plan['num_gpus']} GPUs, {plan['usable_memory'] / GIB:.1f} usable, {plan['precision']}"
    names = ("weights", "gradients", "optimizer", "buckets", "activations", "output", "copy", "peak", "host")
    yield f"  {'setting':32}{''.join(f'{name:>12}' for name in names)}  fits   update"
    for option in plan["settings"]:
        mark = "->" if option["setting"] == chosen["setting"] else "  "
        memory = {**option["memory"]["states"], **option["memory"]}
        sizes = "".join(f"{memory[name] / GIB:12.2f}" for name in names)
        fits = "yes" if option["fits"] else "no"
        setting = str(Setting(**option["setting"]))
        yield f"{mark}{setting:32}{sizes}  {fits:4}{option['seconds']:7.3g} s"
    yield ""
    yield f"chosen: {Setting(**chosen['setting'])}"
    yield f"  {chosen['seconds']:.3g} s an update, in which each rank sends {chosen['sent'] / 1e9:.3g} GB"
    yield f"  {chosen['tokens_per_second']:,.0f} target tokens a second"
    yield f"  {chosen['updates']:,} updates in {chosen['days']:.3g} days"
    yield f"  a checkpoint of {chosen['checkpoint_bytes'] / 1e9:.3g} GB"
    yield ""
    yield "assumed"
    yield from (f"  {line}" for line in plan["assumptions"])
