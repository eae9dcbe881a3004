"""An engine of a few tensors: with ranks that are forked, thousands of saves in seconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch

from configs import CheckpointSection
from trainer.checkpoint.format import CheckpointError, read_checkpoint, verify
from trainer.checkpoint.manager import CheckpointManager, RunIdentity
from trainer.engines.protocol import Engine, ParameterState
from trainer.ranks.distributed import World

IDENTITY = RunIdentity(
    config_yaml="name: forked\n",
    tokenizer_files={"tokenizer.model": b"pieces"},
    manifest={"zero_stage": 0, "precision": "fp32", "fingerprints": {"data": ["d" * 64], "tokenizer": "t" * 64}},
)


class SmallEngine:
    """What a save asks of an engine; its tensors are a function of the step."""

    device = torch.device("cpu")
    shapes = ((7, 5), (64, 32), (), (0, 3))
    kept = ("exp_avg", "exp_avg_sq")

    def __init__(self, step: int, *, has_moments: bool = True, keeps_ema: bool = False, scale: int = 1) -> None:
        draw = torch.Generator().manual_seed(step)
        self.has_moments = has_moments
        self.keeps_ema = keeps_ema
        self.tensors = {
            f"layer.{n}": torch.randn(4, *(d * scale for d in shape), generator=draw)
            for n, shape in enumerate(self.shapes)
        }
        self.moments: dict[str, dict[str, tuple[int, ...]]] = {
            name: dict.fromkeys(self.kept, tuple(t[0].shape)) for name, t in self.tensors.items()
        }

    def parameter_sizes(self) -> dict[str, int]:
        return {name: t[0].numel() for name, t in self.tensors.items()}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(t[0].shape) for name, t in self.tensors.items()}

    def parameter_states(self) -> Iterator[ParameterState]:
        for name, (weight, *moments, ema) in self.tensors.items():
            both = dict(zip(self.kept, moments, strict=True)) if self.has_moments else None
            yield ParameterState(name=name, weight=weight, moments=both, ema=ema if self.keeps_ema else None)


def engine(step: int, *, has_moments: bool = True, keeps_ema: bool = False, scale: int = 1) -> Engine:
    """A small engine, with all of the protocol that a save uses."""
    return cast(Engine, SmallEngine(step, has_moments=has_moments, keeps_ema=keeps_ema, scale=scale))


def manager(folder: Path, world: World, **section: Any) -> CheckpointManager:
    """One of a run's `checkpoints/` folder."""
    return CheckpointManager(folder, CheckpointSection(**{"keep_last": 2, "keep_best": 0, **section}), world, IDENTITY)


def leftovers(folder: Path) -> list[str]:
    """Temporary names in a folder of checkpoints."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("tmp"))


def problems(folder: Path) -> list[str]:
    """What is wrong with a checkpoint."""
    try:
        return verify(read_checkpoint(folder))
    except CheckpointError as error:
        return [str(error)]
