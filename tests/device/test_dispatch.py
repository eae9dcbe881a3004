"""Two micro-batches of one shape ask a device for the same operators with the same numbers, as a CUDA graph needs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from configs import EngineSection, RunConfig, preset_model
from configs.reading.shipped import shipped
from data_pipeline.stream.batch import MicroBatch, Ragged, collate
from model.kernels import use_kernels
from model.layout import first_possible
from tests.device.pseudo import DEVICE, metered
from tests.forked import Forked
from tests.model.flat import nested
from trainer.engines.layouts import stage

VOCABULARY = 64
LENGTHS = ([(5, 6), (9, 4), (3, 8), (7, 2)], [(9, 2), (4, 8), (3, 7), (8, 3)])
"""Of source and target of four pairs: the same numbers of tokens, and the same longest rows."""


class Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators with the shapes, strides and types of tensors, and all other arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs or {}))
        told = [(x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else repr(x) for x in leaves]
        self.calls.append((str(func), told))
        return func(*args, **(kwargs or {}))


def micro_batch(number: int) -> MicroBatch:
    draw = np.random.default_rng(number)
    sides = [[draw.integers(4, VOCABULARY, n[side] - 1).tolist() for n in LENGTHS[number]] for side in (0, 1)]
    return collate(number, np.arange(4), Ragged.of(sides[0]), Ragged.of(sides[1]), 8)


@pytest.mark.parametrize("preset", shipped("configs.presets"))
def test_passes_of_one_shape_are_alike(preset: str) -> None:
    """Without a host that reads or uploads, in half precision with the factors of fp16."""
    from benchmarks.device.budget_model import make_objective

    sizes = {"d_model": 16, "num_heads": 2, "num_kv_heads": 2, "head_width": 8, "d_ff": 24, "max_positions": 16}
    section = preset_model(preset, nested({**sizes, "encoder_layers": 2, "decoder_layers": 2}))
    objective = make_objective(section, VOCABULARY).half()
    use_kernels(objective, DEVICE, "cuda")
    objective.to(DEVICE)
    kind, _ = first_possible(objective.layouts(DEVICE, torch.float16))
    logs = []
    for number in (0, 0, 1):  # the first learns
        batch = stage([micro_batch(number)], [7 + number], DEVICE, kind=kind)()
        factor = torch.full((), 2.0**number).to(DEVICE)
        objective.zero_grad()
        with metered() as meter, Log() as log:
            out = objective(*batch.arguments(), gradient_scale=lambda factor=factor: factor)
            (out.loss_sum * factor).backward()
        assert not meter.waits
        assert not meter.uploads
        logs.append(log.calls)
    assert len(logs[1]) > 300
    assert logs[1] == logs[2]


def accumulated() -> list[list[tuple[str, list[Any]]]]:
    """What an engine asks for in micro-batches with other factors."""
    from benchmarks.device.budget_model import make_objective
    from tests.device.accelerator import use_pseudo_device
    from tests.device.counting import SECTION
    from trainer.engines.deepspeed.engine import DeepSpeedEngine
    from trainer.ranks.distributed import World

    use_pseudo_device()
    world = World(timeout_minutes=2)
    engine = DeepSpeedEngine(
        make_objective(SECTION, VOCABULARY),
        section=EngineSection(zero_stage=1, kernels="cuda"),
        optimizer=RunConfig().optimizer,
        precision="bf16",
        device=world.device,
    )
    logs = []
    for number in (0, 0, 1):
        batch = stage([micro_batch(number)], [7 + number], DEVICE, kind="flash")()
        with Log() as log:
            engine.accumulate(batch, scale=0.25 + number, is_last=False)
        logs.append(log.calls)
    engine.close()
    world.close()
    return logs


def test_an_engine_gives_its_factor_to_the_device(forked: Forked, tmp_path: Path) -> None:
    [(_, one, other)] = forked.ranks(1, accumulated, cwd=tmp_path, meet=False)
    assert len(other) == len(one) + 1 > 300
    [new] = [at for at, (name, _) in enumerate(other) if name == "aten.fill_.Scalar"]
    assert other[:new] + other[new + 1 :] == one
