"""The update of plain PyTorch by every optimizer, stage and precision, on one rank and, from a checkpoint, on two."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from configs import EngineSection, Optimizer, load_run
from configs.components import make
from model import Objective
from model.loss import CrossEntropy
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import optimizers_of, plain_run
from tests.trainer.stability.engine_checks import TOKENS, random_batch, small_model
from trainer.checkpoint.format import read_checkpoint
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.deepspeed.patches import keep_out_shared_memory_op
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision
from trainer.runs.layout import checkpoint_folder

UPDATES, ON_ONE_RANK = 4, 2
# A large eps: with a small one, gradients that are zero but for rounding move weights by whole steps.
FIELDS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 3e-3, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 0.3},
    "adafactor": {"lr": 3e-2, "weight_decay": 0.1, "clip_norm": 0.3},
    "muon": {"lr": 5e-4, "eps": 1e-3, "weight_decay": 0.1, "clip_norm": 0.3},
}
SETTINGS = (  # few, as each takes as long to read as an update to make
    "stream={micro_batches: 5, source_tokens: 160, target_tokens: 160}", "model.dropout=0",
    "schedule={kind: constant, warmup_updates: 0}",
    "training={log_every: 1, ema_decay: 0.8, tensorboard: false}",
    "evaluation={every_updates: 0, max_pairs: 1, search: {max_length_ratio: 0.1, max_length_extra: 1}}",
)  # fmt: skip
WEIGHTED = "stream.datasets=[{path: A, loss_weight: qe}]"
MIXTURE = "stream.datasets=[{path: A, loss_weight: qe}, {path: B, loss_weight: 0.25}, {path: C}]"
FEW = ("stream.datasets=[{path: A, loss_weight: few}]", "stream.micro_batches=2", "stream.max_rows=4")
FROZEN = ("training.freeze=[source_embedding, encoder.layers.0.*, '*.norm.bias']", "model.tied_embeddings=decoder")
DROPOUTS = ("model.dropout=0.2", "model.feed_forward.dropout=0.1", "model.attention.dropout=0.5")
MODERN = ("preset=modern", "model.output_bias=true", "model.attention={num_heads: 4, num_kv_heads: 2}")
CHECKPOINTED, GPU = "model.activation_checkpointing=true", "engine.kernels=cuda"
SMOOTH = "model.feed_forward.kind=gelu"
"""At the kink of ReLU, rounding moves a norm by 5e-5."""
SHARED_OUT = (
    "engine.zero_optimization={stage3_max_live_parameters: 0, stage3_max_reuse_distance: 0, "
    "stage3_param_persistence_threshold: 0}"
)
"""Every parameter is sharded, and gathered for each use: kernels that reach into modules must leave those alone."""
ROWS: dict[str, tuple[str, int, Sequence[str]]] = {
    "tied": ("adamw", 0, ("model.tied_embeddings=three-way", "model.dropout=0.1")),
    "frozen": ("adamw", 1, (*FROZEN, "loss.label_smoothing=0")),
    "offloaded": ("adamw", 2, ("engine.offload_optimizer=true", "model.tied_embeddings=none")),
    "bf16-frozen": ("adamw", 3, (*FROZEN, "engine.precision=bf16")),
    "adafactor": ("adafactor", 0, ()),
    "adafactor-frozen": ("adafactor", 0, FROZEN),
    "muon": ("muon", 1, ()),
    "muon-in-pieces": ("muon", 3, ("stream.micro_batches=2",)),
    "weights": ("adamw", 2, (MIXTURE,)),
    "few": ("adamw", 1, FEW),
    "modern": ("adamw", 3, (*MODERN, CHECKPOINTED, SHARED_OUT, *DROPOUTS)),
    "notebook": ("adamw", 1, ("preset=notebook_postnorm_es", CHECKPOINTED, *DROPOUTS)),
    "packed": ("adamw", 3, (GPU, WEIGHTED, "engine.merge_lanes=2", SHARED_OUT)),
    "merged": ("adamw", 2, (GPU, SMOOTH, "engine.merge_lanes=3", *DROPOUTS[:2])),
    "padded": ("adamw", 1, (GPU, SMOOTH, "engine.merge_lanes=1", "engine.attention=padded", *DROPOUTS[:2])),
    "unchanged": ("adamw", 2, ("engine.plain_deepspeed=true",)),
    "unchanged-muon": ("muon", 1, ("engine.plain_deepspeed=true",)),
    "unchanged-bf16": ("adamw", 1, ("engine.plain_deepspeed=true", "engine.precision=bf16")),
    "bf16": ("adamw", 2, ("engine.precision=bf16",)),
    "muon-bf16": ("muon", 3, ("engine.precision=bf16",)),
    "fp16": ("adamw", 1, ("engine.precision=fp16", "engine.fp16_initial_scale_power=8")),
}
"""Optimizer, stage of ZeRO and settings."""
MASKED = ("merged", "padded")
"""Of these rows, whose masks only kernels for GPUs draw."""


def newton_schulz(
    matrix: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """Muon's iteration in fp32. In torch's bf16, sums in another order soon lead to weights that are 1e-3 apart."""
    a, b, c = coefficients
    x = matrix if matrix.size(0) <= matrix.size(1) else matrix.T
    x = x / max(float(x.norm()), eps)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x if matrix.size(0) <= matrix.size(1) else x.T


IN_FP32 = patch("torch.optim._muon._zeropower_via_newtonschulz", newton_schulz)


def train(world: World, runs: list[list[str]]) -> None:
    """As a rank: see `train_all`."""
    from deepspeed.accelerator import get_accelerator

    keep_out_shared_memory_op()  # which DeepSpeed would compile, unchanged
    fp16 = patch.object(get_accelerator(), "is_fp16_supported", lambda: True)  # on a CPU it says no, as we do
    with IN_FP32, fp16, patch("trainer.build.agreed_precision", lambda asked, _: asked):
        train_all(world, runs)


def of(row: str, folder: Path, corpus: Corpus, weighted: Path, *more: str) -> list[str]:
    kind, stage, options = ROWS[row]
    own = [option.replace("path: ", f"path: {weighted}/") for option in options]
    own += [f"optimizer={json.dumps({'kind': kind, **FIELDS[kind]})}", f"engine.zero_stage={stage}"]
    own += [f"training.max_updates={UPDATES}", f"output={folder}", f"name={row}"]
    return [*corpus.overrides, *SETTINGS, *own, *more]


@pytest.fixture(scope="module")
def runs(forked: Forked, corpus_en_fr: Corpus, weighted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each row's, begun on one rank and ended on two."""
    folder = tmp_path_factory.mktemp("oracle")
    for ranks, until in ((1, ON_ONE_RANK), (2, UPDATES)):
        more = (f"training.max_updates={until}", f"engine.fp16_initial_scale_power={9 - ranks}")
        each = [of(row, folder, corpus_en_fr, weighted, *more) for row in ROWS]
        forked.ranks(ranks, train, each, cwd=folder, seconds=800)
    return folder


def stored(run: Path, kind: str, step: int = UPDATES) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(checkpoint_folder(run, step)).stored(kind))


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).detach().abs().max()) for name in a)


def is_frozen(name: str) -> bool:
    """What FROZEN says, in other words."""
    return name.startswith(("source_embedding.", "encoder.layers.0.")) or name.endswith(".norm.bias")


@pytest.mark.parametrize("row", [row for row in ROWS if row not in MASKED])
def test_it_is_that_of_plain_pytorch(row: str, runs: Path, corpus_en_fr: Corpus, weighted: Path) -> None:
    config = load_run("debug", of(row, runs, corpus_en_fr, weighted))
    with IN_FP32:
        expected = plain_run(config, is_frozen=is_frozen if row.endswith("frozen") else lambda _: False)
    assert max(expected.norms) > config.optimizer.clip_norm, "clipping is never active"
    lines = read_metrics(runs / row)
    assert [line["step"] for line in lines] == list(range(1, UPDATES + 1))
    is_half = config.engine.precision != "fp32"
    assert [line["loss"] for line in lines] == pytest.approx(expected.losses, rel=5e-3 if is_half else 1e-5)
    assert [line["grad_norm"] for line in lines] == pytest.approx(expected.norms, rel=1e-2 if is_half else 1e-4)
    for kind, theirs in (("model", expected.weights), ("ema", expected.ema)):
        assert distance(stored(runs / row, kind), theirs) < (5e-3 if is_half else 1e-5), kind
    frozen = {name for name in expected.weights if row.endswith("frozen") and is_frozen(name)}
    assert all(torch.equal(stored(runs / row, "model")[name], expected.weights[name]) for name in frozen)
    kept = {key.partition("/")[2] for key in stored(runs / row, "optimizer")}
    assert kept == expected.weights.keys() - frozen, "what is frozen has no moments"


def test_the_loss_scale_of_fp16_is_that_of_the_checkpoint(runs: Path) -> None:
    """Not the one that the start on two ranks would begin with; nor are the counts by which it changes."""
    state = read_checkpoint(checkpoint_folder(runs / "fp16", UPDATES)).state()["trainer"]
    assert state["fp16"] == {"scale": 2**8, "since": UPDATES, "hysteresis": 2}


def test_masks_are_those_of_each_pair(runs: Path, corpus_en_fr: Corpus, weighted: Path) -> None:
    """Whatever is computed at once, and with padding or without."""
    merged, padded = (read_metrics(runs / row) for row in MASKED)
    for key in ("loss", "grad_norm"):
        assert [line[key] for line in merged] == pytest.approx([line[key] for line in padded], rel=1e-5)
    none = [f"{setting.partition('=')[0]}=0" for setting in DROPOUTS[:2]]
    without = plain_run(load_run("debug", of("padded", runs, corpus_en_fr, weighted, *none))).losses
    assert all(abs(line["loss"] / loss - 1) > 1e-4 for line, loss in zip(padded, without, strict=True))


@pytest.mark.slow
def test_resumed_where_it_was_it_goes_on_to_the_bit(
    corpus_en_fr: Corpus, weighted: Path, forked: Forked, tmp_path: Path
) -> None:
    parts = (("whole", UPDATES), ("parts", ON_ONE_RANK), ("parts", UPDATES))
    each = [
        of(row, tmp_path, corpus_en_fr, weighted, f"name={row}-{name}", f"training.max_updates={until}")
        for row in ROWS
        for name, until in parts
    ]
    forked.ranks(2, train, each, cwd=tmp_path, seconds=800)
    for row in ROWS:
        whole, resumed = (tmp_path / f"{row}-{name}" for name in ("whole", "parts"))
        losses = [[(line["loss"], line["grad_norm"]) for line in read_metrics(run)] for run in (whole, resumed)]
        assert losses[0] == losses[1], row
        for tensors in ("model", "optimizer", "ema"):
            assert distance(stored(whole, tensors), stored(resumed, tensors)) == 0, (row, tensors)


HALF: list[tuple[str, Precision]] = [("adafactor", "fp16"), ("adafactor", "bf16")]
"""Which DeepSpeed keeps at its stage 0."""


def replayed(world: World, kind: str, precision: Precision) -> dict[str, Any]:
    """As a rank, at stage 0: masters after updates, and what torch's optimizers make of the same gradients."""
    section: Optimizer = make("optimizer", kind, **FIELDS[kind])
    engine = DeepSpeedEngine(
        Objective(small_model(), CrossEntropy(0.1)).train(),
        section=EngineSection(zero_stage=0, fp16_initial_scale_power=8),
        optimizer=section,
        precision=precision,
        device=world.device,
    )
    masters = {name: engine._stage.master(p) for name, p in engine._model.named_parameters()}  # type: ignore[attr-defined]
    model = small_model()
    twins = dict(model.named_parameters())
    for name, master in masters.items():
        twins[name].data.copy_(master)
    plain, applied = optimizers_of(model, section), []

    def copy_gradients(*_: Any) -> None:
        for name, master in masters.items():
            twins[name].grad = None if master.grad is None else master.grad.clone()
        for optimizer in plain:
            optimizer.step()

    engine._states.optimizer.register_step_pre_hook(copy_gradients)
    for update in range(8):
        scale = math.nan if update == 3 else 1 / TOKENS
        engine.accumulate(random_batch(update), scale=scale, is_last=True)
        applied.append(engine.step(FIELDS[kind]["lr"]).applied)
    moved = max(float((masters[n] - p).abs().max()) for n, p in small_model().named_parameters())
    off = max(float((masters[name] - twin).abs().max()) for name, twin in twins.items())
    shapes = {p.name: {key: tuple(t.shape) for key, t in (p.moments or {}).items()} for p in engine.parameter_states()}
    assert shapes == engine.moments
    engine.close()
    return {"moved": moved, "off": off, "applied": applied}


def replay_each(world: World) -> list[dict[str, Any]]:
    from deepspeed.accelerator import get_accelerator

    with patch.object(get_accelerator(), "is_fp16_supported", lambda: True):
        return [replayed(world, *case) for case in HALF]


def test_in_half_precision_it_steps_on_whole_fp32_weights(forked: Forked, tmp_path: Path) -> None:
    for result in forked.ranks(1, replay_each, cwd=tmp_path)[0]:
        assert result["applied"] == [number != 3 for number in range(8)]
        assert result["off"] < 1e-6 < 1e-3 < result["moved"]
