"""The moving average of the weights: that of plain PyTorch, through interruptions, and what is judged and shipped."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from configs import load_run
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import PlainRun, plain_run
from trainer.checkpoint.format import read_checkpoint
from trainer.inference.loading import load_trained
from trainer.runs.layout import checkpoint_folder
from zeromt.cli.main import main

# AdamW with a large eps: with a small one, gradients that are zero but for rounding move weights by whole steps.
SETTINGS = (
    "stream.micro_batches=2",
    "stream.source_tokens=256",
    "stream.target_tokens=256",
    "loss.label_smoothing=0",
    "optimizer.lr=3e-3",
    "optimizer.eps=1e-3",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=10",
    "training.ema_decay=0.4",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=2",
    "checkpoint.every_updates=5",
)
Runs = Callable[[int, int], Path]
LAYOUTS = [(stage, num_ranks) for num_ranks in (1, 2) for stage in range(4)]
RESUMED = [
    pytest.param(stage, num_ranks, marks=[] if (stage, num_ranks) == (3, 2) else pytest.mark.slow)
    for stage, num_ranks in LAYOUTS
]


@pytest.fixture(scope="module")
def settings(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("runs")
    return folder, [*corpus_en_fr.overrides, *SETTINGS, f"output={folder}"]


@pytest.fixture(scope="module")
def runs(settings: tuple[Path, list[str]], forked: Forked) -> Runs:
    """Those of a stage and a number of ranks, each with checkpoints of steps 5 and 10."""
    folder, common = settings

    @functools.cache
    def train_all(num_ranks: int) -> None:
        cases = [[*common, f"name={s}-{n}", f"engine.zero_stage={s}"] for s, n in LAYOUTS if n == num_ranks]
        train(forked, folder, num_ranks, *cases)

    def find(stage: int, num_ranks: int) -> Path:
        train_all(num_ranks)
        return folder / f"{stage}-{num_ranks}"

    return find


@pytest.fixture(scope="module")
def expected(settings: tuple[Path, list[str]]) -> PlainRun:
    return plain_run(load_run("debug", settings[1]))


def train(forked: Forked, folder: Path, num_ranks: int, *overrides: list[str]) -> None:
    forked.ranks(num_ranks, train_all, overrides, cwd=folder, seconds=280)


def stored(run: Path, kind: str, *, step: int = 10) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(checkpoint_folder(run, step)).tensors(kind))


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.parametrize(("stage", "num_ranks"), LAYOUTS)
def test_it_is_that_of_plain_pytorch(stage: int, num_ranks: int, runs: Runs, expected: PlainRun) -> None:
    run = runs(stage, num_ranks)
    assert distance(stored(run, "ema"), expected.ema) < 1e-6
    assert distance(stored(run, "model"), expected.weights) < 1e-6
    assert distance(expected.ema, expected.weights) > 1e-3


@pytest.mark.parametrize(("stage", "num_ranks"), RESUMED)
def test_resumed_it_goes_on(
    stage: int, num_ranks: int, runs: Runs, settings: tuple[Path, list[str]], forked: Forked, tmp_path: Path
) -> None:
    """To the last bit where it was; to rounding at another stage on another number of ranks."""
    for kind, now, number, most in (("same", stage, num_ranks, 0.0), ("other", 3 - stage, 3 - num_ranks, 1e-5)):
        run = Path(shutil.copytree(runs(stage, num_ranks), tmp_path / kind))
        shutil.rmtree(run / "checkpoints" / "step-00000010")
        train(
            forked, tmp_path, number, [*settings[1], f"output={tmp_path}", f"name={kind}", f"engine.zero_stage={now}"]
        )
        for tensors in ("ema", "model"):
            assert distance(stored(run, tensors), stored(runs(stage, num_ranks), tensors)) <= most, kind


def test_it_is_what_is_used(runs: Runs, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = runs(2, 2)
    average, raw = stored(run, "ema"), stored(run, "model")
    for is_raw, expected in ((False, average), (True, raw)):
        assert distance(dict(load_trained(run, raw=is_raw).model.named_parameters()), expected) == 0
        out = tmp_path / f"mean-{is_raw}"
        assert main(["average", str(run), "--last", "1", "-o", str(out), *["--raw-weights"] * is_raw]) == 0
        assert distance(stored(out, "model"), expected) == 0
    capsys.readouterr()
    assert main(["inspect", str(run / "checkpoints" / "step-00000010")]) == 0
    assert "and their moving average" in capsys.readouterr().out


def test_evaluation_while_training_judges_it(runs: Runs, settings: tuple[Path, list[str]]) -> None:
    [line] = read_metrics(runs(3, 2), "evaluation")
    dataset = Dataset.load(Path(load_run("debug", settings[1]).datasets[0].path))
    texts = [side[:2] for side in dataset.held_out("valid")]
    sources, targets = dataset.tokenizer.encode_source(texts[0]), dataset.tokenizer.encode_target(texts[1])
    losses = {}
    for is_raw in (False, True):
        model = load_trained(runs(3, 2), raw=is_raw).model
        total = torch.tensor(0.0)
        for source, target in zip(sources, targets, strict=True):
            hidden = model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))
            logits = F.linear(hidden, model.output.weight, model.output.bias)[0]
            total += F.cross_entropy(logits, torch.tensor([*target, 2]), reduction="sum")
        losses[is_raw] = float(total) / sum(len(t) + 1 for t in targets)
    assert line["loss"] == pytest.approx(losses[False], rel=1e-5)
    assert abs(line["loss"] - losses[True]) > 1e-3


def test_turned_on_and_off_it_says_so(
    runs: Runs, settings: tuple[Path, list[str]], forked: Forked, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(runs(1, 1), tmp_path / "turned"))
    command = ["debug", *settings[1], f"output={tmp_path}", "name=turned"]
    done = forked.trainer(1, *command, "training.max_updates=11", "training.ema_decay=0", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "training.ema_decay is 0: the moving average in" in done.out
    assert stored(run, "ema", step=11) == {}
    on = forked.trainer(1, *command, "training.max_updates=12", cwd=tmp_path)
    assert on.code == 0, on.err
    assert "training.ema_decay: the moving average begins from the weights: " in on.out
    before, after, average = (stored(run, k, step=s) for k, s in (("model", 11), ("model", 12), ("ema", 12)))
    assert distance(average, {name: 0.4 * before[name] + 0.6 * after[name] for name in before}) < 1e-6


@pytest.mark.parametrize("value", ["1", "-0.1", "1.5", "nan"])
def test_a_decay_that_is_none_is_refused_in_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "debug", f"training.ema_decay={value}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("zeromt: error: training.ema_decay: ")
    assert len(error.splitlines()) == 1
