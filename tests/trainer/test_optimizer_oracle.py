"""Every optimizer at every stage where it is sound, beside plain PyTorch, through skips, kills and other ranks."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from configs import EngineSection, Optimizer, load_run
from configs.components import make
from model import Objective, ObjectiveOutput
from model.loss import CrossEntropy
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import PlainRun, optimizers_of, plain_run
from tests.trainer.stability.engine_checks import TOKENS, random_batch, small_model
from trainer.build import BuiltRun, build
from trainer.checkpoint.format import read_checkpoint
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.engines.protocol import DeviceBatch
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision
from trainer.runs.layout import checkpoint_folder

UPDATES = 20
# A large eps: with a small one, gradients that are zero but for rounding move weights by whole steps.
FIELDS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 3e-3, "eps": 1e-3, "weight_decay": 0.1},
    "adafactor": {"lr": 3e-2, "weight_decay": 0.1},
    "muon": {"lr": 5e-4, "eps": 1e-3, "weight_decay": 0.1},
}
SETTINGS = (
    "stream.micro_batches=6", "stream.source_tokens=144", "stream.target_tokens=144", "loss.label_smoothing=0",
    "schedule.kind=constant", "schedule.warmup_updates=0", f"training.max_updates={UPDATES}", "training.log_every=1",
    "training.ema_decay=0.8", "training.tensorboard=false", "training.memory_probe=false", "evaluation.every_updates=0",
    "evaluation.max_pairs=2", "checkpoint.keep_last=9",
)  # fmt: skip


def section(kind: str) -> Optimizer:
    made: Optimizer = make("optimizer", kind, **FIELDS[kind])
    return made


SOUND = [(kind, stage) for kind in FIELDS for stage in section(kind).stages]


SAMPLE = [("adafactor", 0), ("muon", 1), ("muon", 3)]
OF_KINDS = pytest.mark.parametrize(
    "kinds", [("adafactor", "muon"), pytest.param(("adamw",), marks=pytest.mark.slow)], ids="-".join
)


def of(corpus: Corpus, folder: Path, kind: str, stage: int, name: str, *more: str) -> list[str]:
    fields = [f"optimizer.{key}={value}" for key, value in FIELDS[kind].items()]
    engine = [f"engine.zero_stage={stage}", "engine.precision=fp32"]
    return [
        *corpus.overrides, *SETTINGS, f"output={folder}", f"name={name}", f"optimizer.kind={kind}", *fields, *engine,
        *more,
    ]  # fmt: skip


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


def train_in_fp32(world: World, runs: list[list[str]]) -> None:
    """As a rank: see `train_all`."""
    with IN_FP32:
        train_all(world, runs)


@pytest.fixture(scope="module")
def plain(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, PlainRun]:
    folder = tmp_path_factory.mktemp("plain")
    with IN_FP32:
        return {kind: plain_run(load_run("debug", of(corpus_en_fr, folder, kind, 0, kind))) for kind in FIELDS}


def stored(run: Path, kind: str, step: int = UPDATES) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(checkpoint_folder(run, step)).tensors(kind))


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def compare(run: Path, plain: PlainRun, what: str) -> None:
    """Losses, norms, weights and their average, of a run of 20 updates and of plain PyTorch."""
    lines = read_metrics(run)
    losses, norms = ([line[key] for line in lines] for key in ("loss", "grad_norm"))
    off = max(abs(a / b - 1) for a, b in zip(losses, plain.losses, strict=True))
    weights, ema = distance(stored(run, "model"), plain.weights), distance(stored(run, "ema"), plain.ema)
    print(f"{what}: losses {off:.1e} (relative), weights {weights:.1e}, average {ema:.1e}")
    assert losses == pytest.approx(plain.losses, rel=1e-5)
    assert norms == pytest.approx(plain.norms, rel=1e-4)
    assert max(weights, ema) < 1e-5


@pytest.mark.parametrize("sound", [SAMPLE, pytest.param(SOUND, marks=pytest.mark.slow)], ids=["some", "all"])
def test_it_is_that_of_plain_pytorch(
    sound: list[tuple[str, int]], plain: dict[str, PlainRun], corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    runs = [of(corpus_en_fr, tmp_path, kind, stage, f"{kind}-{stage}") for kind, stage in sound]
    forked.ranks(2, train_in_fp32, runs, cwd=tmp_path, seconds=280)
    for kind, stage in sound:
        compare(tmp_path / f"{kind}-{stage}", plain[kind], f"{kind}, ZeRO-{stage}, 2 ranks")


@OF_KINDS
def test_on_one_rank_then_three_then_two(
    kinds: tuple[str, ...], plain: dict[str, PlainRun], corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    for ranks, until in ((1, 7), (3, 14), (2, UPDATES)):
        most = f"training.max_updates={until}"
        runs = [of(corpus_en_fr, tmp_path, kind, section(kind).stages[-1], kind, most) for kind in kinds]
        forked.ranks(ranks, train_in_fp32, runs, cwd=tmp_path)
    for kind in kinds:
        compare(tmp_path / kind, plain[kind], f"{kind}, 1, 3 and 2 ranks")


class Killed(BaseException):
    """The run ends here, and nobody tidies up."""


def train_with_skip(world: World, runs: list[tuple[list[str], int | None]]) -> None:
    """As a rank: runs whose update 4 is skipped; one with a step is killed there, and started again."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True  # on a CPU DeepSpeed says no to the precision, as we do
    with patch("trainer.build.agreed_precision", lambda asked, _: asked):
        for overrides, killed_at in runs:
            for limit in (None,) if killed_at is None else (killed_at, None):
                train_one(world, overrides, limit)


def train_one(world: World, overrides: list[str], killed_at: int | None) -> None:
    config = load_run("debug", overrides)
    if world.is_main:
        Path(config.folder).mkdir(parents=True, exist_ok=True)
    world.barrier()
    built: BuiltRun = build(config, world, stop_requested=lambda: False)
    engine, state = built.context.engine, built.context.state
    accumulate = engine.accumulate

    def disturbed(batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        if state.step == killed_at:
            raise Killed
        return accumulate(batch, scale=math.nan if state.step == 3 else scale, is_last=is_last)

    engine.accumulate = disturbed  # type: ignore[method-assign]
    try:
        built.trainer.fit()
    except Killed:
        assert killed_at is not None
    finally:
        built.close()


@OF_KINDS
@pytest.mark.parametrize("precision", ["fp16", pytest.param("bf16", marks=pytest.mark.slow)])
def test_killed_it_goes_on_to_the_bit(
    kinds: tuple[str, ...], precision: Precision, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """Through a skipped update, with a moving average, in half precision."""
    runs = []
    for kind in kinds:
        for name, step in (("whole", None), ("killed", 8)):
            more = [f"engine.precision={precision}", "training.max_updates=10", "checkpoint.every_updates=5"]
            more += ["engine.fp16_initial_scale_power=8", "stream.micro_batches=2"]
            stage = {"adamw": 0, "adafactor": 0, "muon": 1 if precision == "bf16" else 2}[kind]
            runs.append((of(corpus_en_fr, tmp_path, kind, stage, f"{kind}-{name}", *more), step))
    forked.ranks(2, train_with_skip, runs, cwd=tmp_path)
    for kind in kinds:
        whole, killed = (tmp_path / f"{kind}-{name}" for name in ("whole", "killed"))
        assert [e["step"] for e in read_metrics(whole, "event") if e["event"] == "skipped_update"] == [4]
        for tensors in ("model", "optimizer", "ema"):
            assert distance(stored(whole, tensors, 10), stored(killed, tensors, 10)) == 0, (kind, tensors)
        keys = ("loss", "lr", "grad_norm", "skipped_updates")
        losses = [[[line[key] for key in keys] for line in read_metrics(run)] for run in (whole, killed)]
        assert losses[0] == losses[1]


def replayed(world: World, kind: str, precision: Precision) -> dict[str, Any]:
    """As a rank, at stage 0: masters after updates, and what torch's optimizers make of the same gradients."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True
    engine = DeepSpeedEngine(
        Objective(small_model(), CrossEntropy(0.1)).train(),
        section=EngineSection(zero_stage=0, fp16_initial_scale_power=8),
        optimizer=section(kind),
        precision=precision,
        device=world.device,
        world_size=world.size,
    )
    masters = {name: engine._stage._master(p) for name, p in engine._model.named_parameters()}  # type: ignore[attr-defined]
    model = small_model()
    twins = dict(model.named_parameters())
    for name, master in masters.items():
        twins[name].data.copy_(master)
    plain, applied = optimizers_of(model, section(kind)), []

    def copy_gradients(*_: Any) -> None:
        for name, master in masters.items():
            twins[name].grad = None if master.grad is None else master.grad.clone()
        for optimizer in plain:
            optimizer.step()

    engine._base_optimizer.register_step_pre_hook(copy_gradients)
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


@pytest.mark.parametrize("kind", ["adafactor", "muon", pytest.param("adamw", marks=pytest.mark.slow)])
def test_in_half_precision_it_steps_on_whole_fp32_weights(kind: str, forked: Forked, tmp_path: Path) -> None:
    for precision in ("bf16", "fp16"):
        [found] = forked.ranks(1, replayed, kind, precision, cwd=tmp_path)
        print(f"{kind}, ZeRO-0 in {precision}: weights {found['off']:.1e} off, moved by {found['moved']:.1e}")
        assert found["applied"] == [number != 3 for number in range(8)]
        assert found["off"] < 1e-6 < 1e-3 < found["moved"]


def muon_at_each_stage(world: World, precision: Precision) -> dict[int, Any]:
    """As a rank: losses, master weights and momentum of matrices after updates, one of them skipped, at each stage."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True
    found = {}
    for stage in range(4):
        engine = DeepSpeedEngine(
            Objective(small_model(), CrossEntropy(0.1)).train(),
            section=EngineSection(zero_stage=stage, fp16_initial_scale_power=8),  # type: ignore[arg-type]
            optimizer=section("muon"),
            precision=precision,
            device=world.device,
            world_size=world.size,
        )
        losses = []
        with IN_FP32:
            for update in range(8):
                scale = math.nan if update == 3 else 1 / (TOKENS * world.size)
                out = engine.accumulate(random_batch(2 * update + world.rank), scale=scale, is_last=True)
                losses.append(float(out.loss_sum) / TOKENS)
                assert engine.step(5e-3).applied == (update != 3)
        states = list(engine.parameter_states())
        assert {p.name: {key: tuple(t.shape) for key, t in (p.moments or {}).items()} for p in states} == engine.moments
        kept = {p.name: p.moments or {} for p in states}
        momentum = {name: own["momentum_buffer"].clone() for name, own in kept.items() if "momentum_buffer" in own}
        found[stage] = losses, {p.name: p.weight.clone() for p in states}, momentum
        engine.close()
    return found


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_in_half_precision_muon_is_the_same_at_every_stage(
    precision: Precision, forked: Forked, tmp_path: Path
) -> None:
    for found in forked.ranks(2, muon_at_each_stage, precision, cwd=tmp_path):
        losses, weights, momentum = found[0]
        first = {name: p.detach() for name, p in small_model().named_parameters()}
        moved = distance(weights, first)
        for stage in (1, 2, 3):
            off = max(abs(a / b - 1) for a, b in zip(found[stage][0], losses, strict=True))
            apart, of_momentum = distance(found[stage][1], weights), distance(found[stage][2], momentum)
            found_off = f"losses {off:.1e}, weights {apart:.1e} of {moved:.1e}, momentum {of_momentum:.1e}"
            print(f"muon, ZeRO-{stage} to 0 in {precision}: {found_off}")
            assert off < 5e-3  # stage 3 adds up gradients in another order
            assert apart < 0.05 * moved
