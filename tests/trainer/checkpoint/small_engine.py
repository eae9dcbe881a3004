"""A saver over an engine of a few tensors: with ranks that are forked, thousands of saves in seconds."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch

from configs import CheckpointSection, RunConfig
from data_pipeline.order.state import StreamState
from trainer.checkpoint.save import RunIdentity, Saver
from trainer.checkpoint.state import TrainerState
from trainer.engines import Engine
from trainer.engines.batches import ParameterState
from trainer.ranks.distributed import World

IDENTITY = RunIdentity(
    config_yaml="name: forked\n",
    tokenizer_files={"tokenizer.model": b"pieces"},
    manifest={"zero_stage": 0, "precision": "fp32", "fingerprints": {"data": ["d" * 64], "tokenizer": "t" * 64}},
)
SHAPES = ((7, 5), (64, 32), (), (0, 3))
KEPT = ("exp_avg", "exp_avg_sq")


class SmallEngine:
    """What a save asks of an engine; its tensors are a function of the step."""

    device = torch.device("cpu")

    def __init__(self, *, keeps_ema: bool = False, scale: int = 1) -> None:
        self.keeps_ema, self._scale = keeps_ema, scale
        self.tensors: dict[str, torch.Tensor] = {}
        """Of each parameter: weight, moments and average."""
        self.at(0)
        self.moments = {name: dict.fromkeys(KEPT, tuple(t[0].shape)) for name, t in self.tensors.items()}

    def at(self, step: int) -> "SmallEngine":
        draw = torch.Generator().manual_seed(step)
        shapes = [[size * self._scale for size in shape] for shape in SHAPES]
        self.tensors = {f"layer.{n}": torch.randn(4, *shape, generator=draw) for n, shape in enumerate(shapes)}
        return self

    def own_weights(self) -> Iterator[tuple[str, int, torch.Tensor]]:
        return ((name, 0, t[0]) for name, t in self.tensors.items())

    def fp16_state(self) -> dict[str, float]:
        return {}

    def parameter_sizes(self) -> dict[str, int]:
        return {name: t[0].numel() for name, t in self.tensors.items()}

    def parameter_states(self) -> Iterator[ParameterState]:
        for name, (weight, *moments, ema) in self.tensors.items():
            both = dict(zip(KEPT, moments, strict=True))
            yield ParameterState(name=name, weight=weight, moments=both, ema=ema if self.keeps_ema else None)


class Saving:
    """A saver, and what it tells."""

    def __init__(
        self, run: Path, world: World, engine: Any = None, refused: Sequence[str] = (), **section: Any
    ) -> None:
        self.engine, self.state, self.events = engine or SmallEngine(), TrainerState(), list[dict[str, Any]]()
        run.mkdir(parents=True, exist_ok=True)
        section = {"keep_last": 2, "keep_best": 0, "max_failures": 9, **section}
        lanes = StreamState(
            epoch=0, update=0, lanes={world.rank: ()}, seed=1, micro_batches=world.size, fingerprints=[], proportions=[]
        )
        config = dataclasses.replace(RunConfig(), output=str(run.parent), name=run.name)
        self.saver = Saver(
            config=dataclasses.replace(config, checkpoint=CheckpointSection(**section)),
            world=world,
            engine=cast(Engine, self.engine),
            state=self.state,
            identity=IDENTITY,
            stream=lambda: lanes,
            event=lambda step, event: self.events.append({"step": step, **event}),
            activities=lambda *_, **__: contextlib.nullcontext(),
            has_own=False,
            has_parents=False,
            refused=set(refused),
        )

    def begin(self, step: int) -> None:
        self.state.step = step
        if isinstance(self.engine, SmallEngine):
            self.engine.at(step)
        self.saver.begin()

    def save(self, *steps: int) -> str | None:
        """Save some steps, one after the other; what was wrong with the last."""
        for step in steps:
            self.begin(step)
            self.saver.commit()
        assert self.events[-1]["step"] == steps[-1]
        problem: str | None = self.events[-1]["problem"]
        return problem


def leftovers(folder: Path) -> list[str]:
    """Temporary names in a folder of checkpoints."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith((".zeromt", "tmp")))


def put(checkpoint: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint, and let the manifest say what it is now."""
    (checkpoint / name).write_bytes(content)
    manifest = checkpoint / "manifest.json"
    if not name.startswith("manifest"):
        tree = json.loads(manifest.read_text())
        tree["files"][name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        manifest.write_text(json.dumps(tree))
    if name != "manifest.sha256":
        manifest.with_suffix(".sha256").write_text(f"{sha256(manifest.read_bytes()).hexdigest()}\n")
