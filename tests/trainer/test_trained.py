"""What is frozen: beside plain PyTorch at every stage, on other numbers of ranks, to the bit."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import load_run
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import plain_run
from trainer.build import BuiltRun
from trainer.checkpoint.format import read_checkpoint
from trainer.ranks.distributed import World
from trainer.runs.layout import checkpoint_folder

# AdamW with a large eps: with a small one, gradients that are zero but for rounding move weights by whole steps.
SETTINGS = (
    "model.tied_embeddings=decoder", "stream.micro_batches=2", "stream.source_tokens=256", "stream.target_tokens=256",
    "loss.label_smoothing=0", "optimizer.lr=3e-3", "optimizer.eps=1e-3", "optimizer.weight_decay=0.1",
    "optimizer.clip_norm=0.25", "schedule.kind=constant", "schedule.warmup_updates=0", "engine.precision=fp32",
    "training.ema_decay=0.4", "training.log_every=1", "training.tensorboard=false", "training.memory_probe=false",
    "evaluation.every_updates=0", "evaluation.max_pairs=2",
)  # fmt: skip
FREEZE = "training.freeze=[source_embedding, encoder.layers.0.*, '*.norm.bias']"
UPDATES = 20


def is_frozen(name: str) -> bool:
    """What FREEZE says, in other words."""
    return name.startswith(("source_embedding.", "encoder.layers.0.")) or name.endswith(".norm.bias")


def stored(run: Path, kind: str, *, step: int = UPDATES) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(checkpoint_folder(run, step)).tensors(kind))


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.fixture(scope="module")
def settings(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path_factory.mktemp('runs')}"]


@pytest.fixture(scope="module")
def runs(settings: list[str], forked: Forked) -> Path:
    """A run of 20 updates at each stage on two ranks, with checkpoints of steps 10 and 20, and their parent."""
    common = [*settings, FREEZE, f"training.max_updates={UPDATES}", "checkpoint.every_updates=10"]
    folder = Path(load_run("debug", common).output)
    forked.ranks(2, train_all, [[*settings, "name=parent", "training.max_updates=3"]], cwd=folder)
    cases = [[*common, f"name=stage-{stage}", f"engine.zero_stage={stage}"] for stage in range(4)]
    forked.ranks(2, train_all, cases, None, str(folder / "parent"), cwd=folder)
    return folder


def test_it_is_what_plain_pytorch_does(runs: Path, settings: list[str]) -> None:
    config = load_run("debug", [*settings, f"training.max_updates={UPDATES}"])
    parent = stored(runs / "parent", "ema", step=3)
    expected = plain_run(config, weights=parent, is_frozen=is_frozen)
    assert min(expected.norms) > config.optimizer.clip_norm, "norms are of what is trained, and clipped"
    for stage in range(4):
        run = runs / f"stage-{stage}"
        assert distance(stored(run, "model"), expected.weights) < 1e-5, stage
        assert distance(stored(run, "ema"), expected.ema) < 1e-5, stage
        norms = [line["grad_norm"] for line in read_metrics(run)]
        assert norms == pytest.approx(expected.norms, rel=1e-4), stage
        kept = stored(run, "optimizer")
        names = {name for name in expected.weights if not is_frozen(name)}
        assert kept.keys() == {f"{key}/{name}" for key in ("exp_avg", "exp_avg_sq") for name in names}


def test_resumed_it_goes_on(runs: Path, settings: list[str], forked: Forked, tmp_path: Path) -> None:
    """To the last bit where it was, as after a kill; to rounding on 3 ranks, and from there on 2, from 1 and so on."""
    common = [*settings, FREEZE, f"output={tmp_path}"]
    for stage in (1, 3):
        run = Path(shutil.copytree(runs / f"stage-{stage}", tmp_path / f"same-{stage}"))
        shutil.rmtree(checkpoint_folder(run, UPDATES))
    same = [[*common, f"name=same-{stage}", f"training.max_updates={UPDATES}", f"engine.zero_stage={stage}"]
            for stage in (1, 3)]  # fmt: skip
    forked.ranks(2, train_all, same, cwd=tmp_path)
    for stage in (1, 3):
        for kind in ("model", "optimizer", "ema"):
            ours, theirs = (stored(place, kind) for place in (tmp_path / f"same-{stage}", runs / f"stage-{stage}"))
            assert distance(ours, theirs) == 0, (stage, kind)
    for ranks, stage, updates in ((1, 2, 6), (3, 3, 13), (2, 0, UPDATES)):
        places = ["name=elastic", f"engine.zero_stage={stage}", f"training.max_updates={updates}"]
        forked.ranks(ranks, train_all, [[*common, *places]], None, str(runs / "parent"), cwd=tmp_path)
    for kind in ("model", "optimizer", "ema"):
        assert distance(stored(tmp_path / "elastic", kind), stored(runs / "stage-1", kind)) < 1e-5, kind


def look(world: World, runs: list[list[str]]) -> list[dict[str, Any]]:
    """As a rank: train each, and say what became of the weights, and how many numbers the optimizer keeps."""
    found: list[dict[str, Any]] = []

    def before(built: BuiltRun, _: World) -> None:
        engine = built.context.engine
        weights = {state.name: state.weight.clone() for state in engine.parameter_states()}
        found.append({"engine": engine, "weights": weights, "fit": built.trainer.fit})
        built.trainer.fit = lambda: fit(found[-1])  # type: ignore[method-assign]

    def fit(one: dict[str, Any]) -> Any:
        end = one.pop("fit")()
        engine, weights = one.pop("engine"), one.pop("weights")
        after = {state.name: state for state in engine.parameter_states()}
        one["same"] = sorted(name for name, weight in weights.items() if torch.equal(after[name].weight, weight))
        one["moments"] = sorted(name for name, state in after.items() if state.moments)
        kept = [t for state in engine._base_optimizer.state.values() for key, t in state.items() if key != "step"]
        one["bytes"] = sum(t.numel() * t.element_size() for t in kept)
        frozen = [p for name, p in engine._model.named_parameters() if name not in engine.trained]
        one["gradients"] = [p for p in frozen if p.grad is not None or p.requires_grad]
        one["sizes"] = engine.parameter_sizes()
        return end

    train_all(world, runs, before)
    return found


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_what_is_frozen_stays_to_the_bit_and_has_no_moments(
    precision: str, settings: list[str], forked: Forked, tmp_path: Path
) -> None:
    more = [f"output={tmp_path}", f"engine.precision={precision}", "training.ema_decay=0", "training.max_updates=50"]
    names = [f"stage-{stage}" for stage in range(4)]
    cases = [[*settings, FREEZE, *more, f"name={name}", f"engine.zero_stage={name[-1]}"] for name in names]
    ranks = forked.ranks(2, look, cases, cwd=tmp_path)
    for stage, name in enumerate(names):
        [one, other] = (rank[stage] for rank in ranks)
        frozen = sorted(name for name in one["sizes"] if is_frozen(name))
        assert one["same"] == other["same"] == frozen, stage
        assert one["moments"] == sorted(one["sizes"].keys() - frozen), stage
        assert not one["gradients"]
        trained = 8 * sum(size for name, size in one["sizes"].items() if not is_frozen(name))
        held = one["bytes"] + other["bytes"]
        fill = 8 * 2 * 4 * len(one["sizes"])  # so much may be padding
        assert trained <= held / (2 if stage == 0 else 1) <= trained + fill, stage
        written = stored(tmp_path / name, "optimizer", step=50)
        assert sum(t.nbytes for key, t in written.items() if is_frozen(key.split("/", 1)[1])) == 0, stage
        assert sum(t.nbytes for t in written.values()) == trained


THAWED = (
    "phases=[{name: first, until: {updates: 5}, freeze: [encoder.*, source_embedding]}, "
    "{name: second, until: {updates: 4}, freeze: [output]}, {name: third}]"
)
"""Of 12 updates the encoder is trained from the sixth on, and the target's matrix rests for four of them."""


@pytest.fixture(scope="module")
def thawed(settings: list[str], forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run with these phases, and the same in parts: stopped within phases, and where one is over."""
    folder = tmp_path_factory.mktemp("thawed")
    common = [*settings, THAWED, f"output={folder}", "checkpoint.keep_last=9"]
    parent = [*settings, f"output={folder}", "name=parent", "training.max_updates=2"]
    forked.ranks(2, train_all, [parent], cwd=folder)
    parts = [("whole", 12), *(("parts", end) for end in (3, 5, 7, 12))]
    cases = [[*common, f"name={name}", f"training.max_updates={end}"] for name, end in parts]
    forked.ranks(2, train_all, cases, None, str(folder / "parent"), cwd=folder)
    return folder, common


def test_another_part_in_each_phase(thawed: tuple[Path, list[str]]) -> None:
    folder, _ = thawed
    for kind in ("model", "optimizer", "ema"):
        assert distance(*(stored(folder / name, kind, step=12) for name in ("whole", "parts"))) == 0, kind
    first = stored(folder / "parent", "ema", step=2)
    rests = {3: ("encoder.", "source_embedding."), 7: ("target_embedding.",)}
    for step, frozen in rests.items():
        names = {name.split("/", 1)[1] for name in stored(folder / "parts", "optimizer", step=step)}
        assert names == {name for name in first if not name.startswith(frozen)}
    begun = stored(folder / "parts", "model", step=3)
    assert {n for n in first if torch.equal(first[n], begun[n])} == {n for n in first if n.startswith(rests[3])}
    since = read_checkpoint(checkpoint_folder(folder / "parts", 12)).state()["trainer"]["trained_since"]
    of_second = {name: 5 for name in first if name.startswith(rests[3])}
    assert since == {**of_second, "target_embedding.tokens.weight": 9}


@pytest.mark.slow
def test_phases_on_other_ranks(thawed: tuple[Path, list[str]], forked: Forked) -> None:
    folder, common = thawed
    for end, stage, ranks in ((4, 3, 1), (8, 2, 3), (12, 0, 2)):
        case = [*common, "name=elastic", f"engine.zero_stage={stage}", f"training.max_updates={end}"]
        forked.ranks(ranks, train_all, [case], None, str(folder / "parent"), cwd=folder)
    for kind in ("model", "optimizer", "ema"):
        assert distance(*(stored(folder / name, kind, step=12) for name in ("whole", "elastic"))) < 1e-5, kind


def test_what_is_frozen_may_change_at_a_resume(settings: list[str], forked: Forked, tmp_path: Path) -> None:
    """As from one phase to the next."""
    common = [*settings, f"output={tmp_path}"]
    thaw = [
        [*common, "name=resumed", "training.max_updates=3", "training.freeze=[encoder]"],
        [*common, "name=resumed", "training.max_updates=6"],
    ]
    forked.ranks(2, train_all, thaw, cwd=tmp_path)
    moments = {step: stored(tmp_path / "resumed", "optimizer", step=step) for step in (3, 6)}
    assert not any("/encoder." in name for name in moments[3])
    assert all(bool(t.abs().sum()) for name, t in moments[6].items() if "/encoder." in name)
    state = read_checkpoint(checkpoint_folder(tmp_path / "resumed", 6)).state()["trainer"]
    assert set(state["trained_since"].values()) == {3}
