"""What the real engine holds and sends on a rank, in bytes."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist

from configs import EngineSection, RunConfig
from model import Objective, SpecialIds, build_transformer
from model.loss import CrossEntropy
from tests.model.flat import section_of
from trainer.engines.batches import DeviceBatch
from trainer.engines.deepspeed import reduction
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision
from zeromt.planning.costs.memory import Stage

SLOTS = 2
"""Micro-batches of an update."""
VOCABULARY = 1501
# The embedding is above the 100,000 elements that stage 3 keeps gathered, the rest below; little divides by 4.
SECTION = section_of(
    d_model=130, num_heads=5, d_ff=203, encoder_layers=2, decoder_layers=3, output_bias=True, dropout=0, norm="scalar"
)
SENT = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_gather", "reduce_scatter", "broadcast")
WEIGHTS = ("bit16_groups_flat", "bf16_groups_flat")
MASTERS = (
    "single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "fp32_groups",
)  # fmt: skip
GRADIENTS = (
    "averaged_gradients", "all_grad_tensors", "grad_partitions_flat_buffer", "accumulated_grads_in_cpu",
    "fp32_groups_gradients_flat",
)  # fmt: skip
"""DeepSpeed's names for what its optimizers hold."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Case:
    """How the engine is set."""

    stage: Stage
    precision: Precision
    offload: bool = False
    keeps_ema: bool = False

    def engine_section(self) -> EngineSection:
        """Its section, with a bucket that holds all but the embedding."""
        return EngineSection(
            zero_stage=self.stage,
            precision=self.precision,
            offload_optimizer=self.offload,
            zero_optimization={"reduce_bucket_size": 200_000} if self.stage else {},
            fp16_initial_scale_power=4,  # so that no update is skipped
        )


STAGES: tuple[Stage, ...] = (0, 1, 2, 3)
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
CASES = [
    *(Case(stage=stage, precision=precision) for precision, stage in product(PRECISIONS, STAGES)),
    *(Case(stage=s, precision=p, offload=True) for p, s in product(PRECISIONS[:2], STAGES[1:])),
    *(Case(stage=stage, precision="bf16", keeps_ema=True) for stage in STAGES),
]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All in a nest of lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def storages(*values: Any) -> dict[int, int]:
    """Bytes of every storage behind these tensors, once each."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors(values)}
    return {place: size for place, size in found.items() if size}


def held(engine: DeepSpeedEngine) -> dict[str, int]:
    """Bytes of the engine's parts."""
    optimizer, stage = engine._engine.optimizer, engine._stage
    parameters = list(engine._engine.module.parameters())

    def named(names: tuple[str, ...]) -> list[Any]:
        return [vars(optimizer).get(name) for name in names]

    weights = storages(parameters, [getattr(p, "ds_tensor", None) for p in parameters], named(WEIGHTS))
    masters = named(MASTERS)
    states = [
        value for state in engine._states.optimizer.state.values() for key, value in state.items() if key != "step"
    ]
    gradients = storages(
        [[p.grad, getattr(p, "grad_accum", None)] for p in parameters],
        named(GRADIENTS),
        [master.grad for master in tensors(masters)],
        [getattr(getattr(stage, "_reduction", None), name, None) for name in ("_sums", "_flats")],
        [own for *_, own, _ in getattr(getattr(stage, "_reduction", None), "_sent", ())],
    )
    buckets = storages([bucket.buffer for bucket in getattr(optimizer, "ipg_buckets", {}).values()])
    masters_and_states = storages(masters, states)
    return {
        "weights": sum(weights.values()),
        "gradients": sum(size for place, size in gradients.items() if place not in buckets),
        "optimizer": sum(size for place, size in masters_and_states.items() if place not in weights),
    }


def measure_all(world: World) -> list[dict[str, Any]]:
    """Measure every case."""
    from deepspeed.accelerator import get_accelerator

    sent = dict.fromkeys(SENT, 0)

    def counted(kind: str, collective: Callable[..., Any]) -> Callable[..., Any]:
        def send(*args: Any, **kwargs: Any) -> Any:
            # of input and output the whole is counted, not the rank's part
            sent[kind] += max(sum(t.numel() * t.element_size() for t in tensors(v)) for v in (*args, *kwargs.values()))
            return collective(*args, **kwargs)

        return send

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(get_accelerator(), "is_fp16_supported", lambda: True)  # refused on a CPU, where it works
        for kind in SENT:  # once: DeepSpeed keeps what it finds first
            patch.setattr(dist, kind, counted(kind, getattr(dist, kind)))
        patch.setattr(reduction, "_reduce_scatter", counted("reduce_scatter_tensor", reduction._reduce_scatter))
        return [_measure(_engine(case, world), sent) for case in CASES]


def _measure(engine: DeepSpeedEngine, sent: dict[str, int]) -> dict[str, Any]:
    """Of two updates: at rest, at the end of a forward pass, gradients between slots, and what the last one sent."""
    found: dict[str, Any] = {}
    engine._model.output.register_forward_hook(lambda *_: found.update(live=held(engine)["weights"]))
    ids = torch.full((4, 8), 5)
    batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
    for _ in range(2):
        sent |= dict.fromkeys(SENT, 0)
        engine.accumulate(batch, scale=1e-3, is_last=False)
        gradients = held(engine)["gradients"]
        engine.accumulate(batch, scale=1e-3, is_last=True)  # with a copy in fp32, which the plan counts for itself
        engine.step(1e-3)
    found |= {"rest": held(engine), "gradients": gradients, "sent": dict(sent)}
    engine.close()
    return found


def _engine(case: Case, world: World) -> DeepSpeedEngine:
    special = SpecialIds(pad=0, bos=1, eos=2)
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    return DeepSpeedEngine(
        Objective(build_transformer(SECTION, **sizes, special=special, seed=1), CrossEntropy(0.1)).train(),
        section=case.engine_section(),
        optimizer=RunConfig().optimizer,
        precision=case.precision,
        device=world.device,
        ema_decay=0.99 if case.keeps_ema else 0.0,
    )
