"""What the real engine holds and sends, in bytes: `engine_bytes.py OUT`, as one rank; writes OUT.RANK as JSON."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from configs import EngineSection, RunConfig
from model import Objective, SpecialIds, build_transformer
from model.loss import CrossEntropy
from tests.model.flat import section_of
from trainer.engines.deepspeed import engine as engines
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.protocol import DeviceBatch
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision
from trainer.ranks.process import tune_process
from zeromt.planning.costs.memory import Stage

BUCKET = 200_000
SLOTS = 2
"""Micro-batches of an update."""
VOCABULARY = 1501
# The embedding is above the 100,000 elements that stage 3 keeps gathered, the rest below; little divides by 4.
SECTION = section_of(
    d_model=130, num_heads=5, d_ff=203, encoder_layers=2, decoder_layers=3, output_bias=True, dropout=0, norm="scalar"
)


@dataclasses.dataclass(kw_only=True, frozen=True)
class Case:
    """How the engine is set."""

    stage: Stage
    precision: Precision
    offload: bool
    keeps_ema: bool = False

    @property
    def name(self) -> str:
        """Short."""
        return f"{self.stage} {self.precision}{' offload' if self.offload else ''}{' ema' if self.keeps_ema else ''}"

    def engine_section(self) -> EngineSection:
        """Its section, with a bucket that holds all but the embedding."""
        zero = {"reduce_bucket_size": BUCKET} if self.stage else {}
        return EngineSection(
            zero_stage=self.stage,
            precision=self.precision,
            offload_optimizer=self.offload,
            zero_optimization=zero,
            fp16_initial_scale_power=4,  # so that no update is skipped
        )


STAGES: tuple[Stage, ...] = (0, 1, 2, 3)
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
CASES = [
    Case(stage=stage, precision=precision, offload=offload)
    for precision in PRECISIONS
    for stage in STAGES
    for offload in ([False, True] if stage and precision != "fp16" else [False])
] + [Case(stage=stage, precision="bf16", offload=False, keeps_ema=True) for stage in STAGES]


def make_engine(case: Case, world: World) -> DeepSpeedEngine:
    """A new one."""
    model = build_transformer(
        SECTION,
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        special=SpecialIds(pad=0, bos=1, eos=2),
        seed=1,
    )
    return DeepSpeedEngine(
        Objective(model, CrossEntropy(0.1)).train(),
        section=case.engine_section(),
        optimizer=RunConfig().optimizer,
        precision=case.precision,
        device=world.device,
        world_size=world.size,
        ema_decay=0.99 if case.keeps_ema else 0.0,
    )


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All in a nest of lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def storages(*values: Any) -> dict[int, int]:
    """Bytes of every storage behind these tensors, once each."""
    return {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in tensors(values)
        if t.untyped_storage().nbytes()
    }


class Holdings:
    """What the engine's parts hold, by DeepSpeed's names for them."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine
        self._optimizer = engine._engine.optimizer
        self._parameters = list(engine._engine.module.parameters())

    def now(self) -> dict[str, int]:
        """Bytes by part."""
        weights = self._weights()
        masters = self._masters()
        states = [list(s.items()) for s in self._engine._base_optimizer.state.values()]
        moments = [value for items in states for key, value in items if key != "step"]
        optimizer = self._without(storages(masters, moments), weights)
        buckets = getattr(self._optimizer, "ipg_buckets", {})
        gradients = storages(
            [[p.grad, getattr(p, "grad_accum", None)] for p in self._parameters],
            self._named(
                "averaged_gradients",
                "all_grad_tensors",
                "grad_partitions_flat_buffer",
                "accumulated_grads_in_cpu",
                "fp32_groups_gradients_flat",
            ),
            [master.grad for master in tensors(masters)],
            getattr(getattr(self._engine._stage, "_sums", None), "flat", None),
            getattr(getattr(self._engine._stage, "_reduction", None), "_sums", None),
        )
        gradients = self._without(gradients, storages([bucket.buffer for bucket in buckets.values()]))
        parts = {"weights": weights, "gradients": gradients, "optimizer": optimizer}
        return {part: sum(found.values()) for part, found in parts.items()}

    def _weights(self) -> dict[int, int]:
        shares = [getattr(p, "ds_tensor", None) for p in self._parameters]
        return storages(self._parameters, shares, self._named("bit16_groups_flat", "bf16_groups_flat"))

    def _masters(self) -> list[Any]:
        return self._named(
            "single_partition_of_fp32_groups",
            "fp32_partitioned_groups_flat",
            "fp32_groups_flat_partition",
            "fp32_groups",
        )

    def _named(self, *names: str) -> list[Any]:
        return [vars(self._optimizer).get(name) for name in names]

    @staticmethod
    def _without(found: dict[int, int], others: Iterable[int]) -> dict[int, int]:
        return {key: found[key] for key in found.keys() - set(others)}


class Sent:
    """Bytes that went into collectives of torch.distributed, by kind."""

    KINDS = (
        "all_reduce",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
        "all_gather",
        "reduce_scatter",
        "broadcast",
    )

    def __init__(self) -> None:
        self.bytes = dict.fromkeys(self.KINDS, 0)
        for kind in self.KINDS:
            setattr(dist, kind, self._counting(kind, getattr(dist, kind)))

    def _counting(self, kind: str, collective: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            # of input and output the whole is counted, not the rank's part
            sides = [sum(t.numel() * t.element_size() for t in tensors(v)) for v in (*args, *kwargs.values())]
            self.bytes[kind] += max(sides)
            return collective(*args, **kwargs)

        return counted

    def take(self) -> dict[str, int]:
        """Since the last time."""
        taken, self.bytes = self.bytes, dict.fromkeys(self.KINDS, 0)
        return taken


def measure(case: Case, world: World, sent: Sent) -> dict[str, Any]:
    """Two updates; at rest, at the end of a forward pass, and the most that gradients take at any time."""
    engine = make_engine(case, world)
    holdings = Holdings(engine)
    found: dict[str, Any] = {}
    engine._model.output.register_forward_hook(lambda *_: found.update(live=holdings.now()["weights"]))
    ids = torch.full((4, 8), 5)
    batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
    moments = []
    for _ in range(2):
        sent.take()
        for slot in range(SLOTS):
            engine.accumulate(batch, scale=1e-3, is_last=slot == SLOTS - 1)
            moments.append(holdings.now())
        engine.step(1e-3)
        found["sent"] = sent.take()
        moments.append(holdings.now())
    found["rest"] = moments[-1]
    found["gradients"] = max(moment["gradients"] for moment in moments)
    engine.close()
    return found


def main() -> None:
    """Measure every case."""
    from deepspeed.accelerator import get_accelerator

    engines._make_collectives_fast = lambda: None  # what goes through shared memory is not seen
    get_accelerator().is_fp16_supported = lambda: True  # DeepSpeed refuses it on a CPU, where its arithmetic works
    tune_process()
    world = World(timeout_minutes=2)
    sent = Sent()
    found = {case.name: measure(case, world, sent) for case in CASES}
    Path(f"{sys.argv[1]}.{world.rank}").write_text(json.dumps(found))
    world.close()


if __name__ == "__main__":
    main()
