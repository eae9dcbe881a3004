"""What the real engine holds on every rank, in bytes: `engine_bytes.py OUT WORLD-SIZE'S-CASES...`; one JSON file a rank."""

import gc
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from configs import EngineSection, ModelSection, OptimizerSection
from model import Objective, SpecialIds, build_transformer
from trainer.deepspeed_engine import DeepSpeedEngine
from trainer.distributed import World
from trainer.engine import DeviceBatch
from trainer.precision import Precision
from trainer.process import tune_process

CASES: list[tuple[int, Precision, bool]] = [
    (stage, precision, offload)
    for precision in ("fp32", "bf16")
    for stage in range(4)
    for offload in ([False, True] if stage else [False])
]
VOCABULARY = 1000


def section() -> ModelSection:
    return ModelSection(d_model=64, num_heads=4, d_ff=200, encoder_layers=2, decoder_layers=3, dropout=0)


def make_engine(stage: int, precision: Precision, offload: bool, world: World) -> DeepSpeedEngine:
    model = build_transformer(
        section(),
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        special=SpecialIds(pad=0, bos=1, eos=2),
        seed=1,
    )
    return DeepSpeedEngine(
        Objective(model, label_smoothing=0.1).train(),
        section=EngineSection(zero_stage=stage, offload_optimizer=offload),  # type: ignore[arg-type]
        optimizer=OptimizerSection(),
        precision=precision,
        device=world.device,
        world_size=world.size,
    )


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def storages(values: Iterable[Any]) -> dict[int, int]:
    return {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for value in values
        for t in tensors(value)
        if t.untyped_storage().nbytes()
    }


def held(engine: DeepSpeedEngine) -> dict[str, int]:
    optimizer = engine._engine.optimizer
    parameters = list(engine._engine.module.parameters())
    names = vars(optimizer)
    get = names.get
    weights = storages([parameters, [getattr(p, "ds_tensor", None) for p in parameters], get("bit16_groups_flat"), get("fp16_partitioned_groups_flat")])
    masters = get("single_partition_of_fp32_groups"), get("fp32_partitioned_groups_flat"), get("fp32_groups")
    state = storages([masters, *[[v for k, v in s.items() if k != "step"] for s in engine._base_optimizer.state.values()]])
    state = {k: v for k, v in state.items() if k not in weights}
    grads = storages([[p.grad for p in parameters], [getattr(p, "grad_accum", None) for p in parameters], get("averaged_gradients"), get("all_grad_tensors"), get("grad_partitions_flat_buffer"), get("accumulated_grads_in_cpu"), [t.grad for t in tensors(masters)]])
    return {"weights": sum(weights.values()), "gradients": sum(grads.values()), "optimizer": sum(state.values())}


def everything() -> int:
    gc.collect()
    return sum(storages(o for o in gc.get_objects() if type(o) in (torch.Tensor, torch.nn.Parameter)).values())


def others(engine) -> list:
    gc.collect()
    out = {}
    for o in gc.get_objects():
        if type(o) in (torch.Tensor, torch.nn.Parameter) and o.untyped_storage().nbytes() > 4000:
            out[o.untyped_storage().data_ptr()] = (tuple(o.shape), str(o.dtype), o.untyped_storage().nbytes())
    return sorted(out.values(), key=lambda x: -x[2])[:14]


def main() -> None:
    tune_process()
    world = World(timeout_minutes=1)
    out = {}
    for stage, precision, offload in CASES:
        name = f"{stage} {precision}{' offload' if offload else ''}"
        engine = make_engine(stage, precision, offload, world)
        ids = torch.full((4, 8), 5)
        batch = DeviceBatch(source=ids, target_input=ids, target_output=ids)
        found = {}
        for update in range(2):
            engine.accumulate(batch, scale=1e-3, is_last=False)
            found["between"] = held(engine)
            engine.accumulate(batch, scale=1e-3, is_last=True)
            found["before step"] = held(engine)
            engine.step(1e-3)
            found["rest"] = held(engine)
        found["all"] = everything()
        found["others"] = others(engine)
        out[name] = found
        engine.close()
    Path(f"{sys.argv[1]}.{world.rank}").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
