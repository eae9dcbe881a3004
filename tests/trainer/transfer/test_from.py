"""`--from`: a run at step 0 with the weights of another, through kills and restarts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import UserError
from tests.conftest import Finished, read_metrics
from tests.forked import Forked
from trainer.checkpoint.format import read_whole
from trainer.runs.parents import check_beginning

PARENT = "runs/small"
SETTINGS = ["training.tensorboard=false", "evaluation.max_pairs=2", "name=tuned"]
Train = Callable[..., Finished]


@pytest.fixture
def train(place: Path, forked: Forked) -> Train:
    def run(*arguments: str, config: str = "small.yaml") -> Finished:
        return forked.zeromt("train", config, *SETTINGS, *arguments, cwd=place)

    return run


def test_begins_anew_with_the_weights_of_another(place: Path, forked: Forked) -> None:
    """Against the way in place, from the same weights: the same updates, counted from 0.

    In bf16, so that they differ where the fp32 weights are not the parent's to the last bit.
    """
    more = [
        "engine.precision=bf16",
        "engine.zero_stage=2",
        "training.max_updates=6",
        "training.ema_decay=0",
        "schedule.kind=linear",
        "evaluation.every_updates=3",
    ]
    done = forked.trainer(2, "small.yaml", "--from", f"{PARENT}@10", *SETTINGS, *more, cwd=place)
    assert done.code == 0, done.err
    assert "begins with the weights of small, step 10" in done.out
    tuned = place / "runs" / "tuned"
    lines = read_metrics(tuned)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["lr"] == 0, "the whole schedule"
    assert [line["step"] for line in read_metrics(tuned, "evaluation")] == [0, 3, 6]
    mean = forked.zeromt("average", PARENT, "--last", "1", "-o", "runs/mean", cwd=place)
    assert mean.code == 0, mean.err
    again = ["--reset", "data,optimizer", *SETTINGS[:-1], *more, "name=mean"]
    done = forked.trainer(2, "small.yaml", *again, cwd=place)
    assert done.code == 0, done.err
    assert [line["step"] for line in read_metrics(place / "runs" / "mean")] == [11, 12, 13, 14, 15, 16]
    for ours, theirs in zip(lines, read_metrics(place / "runs" / "mean"), strict=True):
        assert (ours["loss"], ours["lr"], ours["epoch"]) == (theirs["loss"], theirs["lr"], theirs["epoch"])

    checkpoint = read_whole(tuned / "checkpoints" / "step-00000006")
    sha256 = (place / PARENT / "checkpoints/step-00000010/manifest.sha256").read_text().strip()
    expected = {"run": str(place / PARENT), "step": 10, "sha256": sha256, "weights": "ema", "rows": {}}
    assert checkpoint.manifest["parent"] == expected
    said = forked.zeromt("inspect", str(tuned), cwd=place).out
    assert f"parent          small, step 10, {sha256[:12]}" in said
    state = checkpoint.state()["trainer"]
    assert (state["start_step"], state["schedule_start"], state["series_start"]) == (0, 0, 0)
    assert sorted(state["scores"]["bleu"]) == ["0", "3", "6"]


def test_kills_and_restarts(place: Path, train: Train) -> None:
    """Before the first checkpoint the same command begins again, after it the run's own is resumed."""
    tuned = place / "runs" / "tuned"
    assert train("--from", PARENT, "training.max_updates=3").code == 0
    losses = [line["loss"] for line in read_metrics(tuned)]
    shutil.rmtree(tuned / "checkpoints")  # as after a kill before the first save, of which nothing is told
    lines = (tuned / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tuned / "metrics.jsonl").write_text("".join(line for line in lines if '"checkpoint"' not in line))
    done = train("--from", PARENT, "training.max_updates=3")
    assert done.code == 0, done.err
    assert "begins with the weights of small, step 10" in done.out
    assert [line["loss"] for line in read_metrics(tuned)] == losses
    assert [line["step"] for line in read_metrics(tuned, "evaluation")] == [0, 3]
    shutil.rmtree(place / PARENT / "checkpoints")  # it is needed no more
    for more, last in ((["--from", PARENT], 5), ([], 6)):
        done = train(*more, f"training.max_updates={last}")
        assert done.code == 0, done.err
        assert "resumed from" in done.out
        assert read_whole(tuned / "checkpoints" / f"step-{last:08d}").manifest["parent"]["step"] == 10
    assert [line["step"] for line in read_metrics(tuned)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", f"{PARENT}@7"], "has no checkpoint of step 7; it has 5, 10"),
        (["--from", "corpus"], "has no checkpoint yet"),
        (["--from", PARENT, "name=small"], "--from: runs/small is the run itself"),
        (["--from", PARENT, "--reset", "data"], "--from: with --reset, which resumes in place"),
    ],
)
def test_refused_before_anything_is_made(place: Path, train: Train, arguments: list[str], said: str) -> None:
    done = train(*arguments)
    assert (done.code, said in done.err, len(done.err.splitlines())) == (2, True, 1), done.err
    assert not (place / "runs" / "tuned").exists()


def test_only_the_same_parent_may_be_named_again(place: Path) -> None:
    """It may have moved, or have deleted the checkpoint; what took its place is another."""
    tuned, parent = Path(shutil.copytree(place / PARENT, place / "runs" / "tuned")), place / PARENT
    hash_file = parent / "checkpoints/step-00000010/manifest.sha256"
    for manifest in (tuned / "checkpoints").glob("step-*/manifest.json"):
        told = {"run": str(parent), "step": 10, "sha256": hash_file.read_text().strip(), "weights": "model"}
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "parent": told}))
    for text in (str(parent), f"{parent}@10", str(parent / "checkpoints/step-00000010")):
        check_beginning(tuned, text, fresh=False)
    for text in (f"{parent}@5", f"{parent}@10:all", str(place / "runs/mixture")):
        with pytest.raises(UserError, match=r"began from small, step 10, .* or begin anew by --fresh"):
            check_beginning(tuned, text, fresh=False)
        check_beginning(tuned, text, fresh=True)
    with pytest.raises(UserError, match="has checkpoints and began from no other run"):
        check_beginning(place / "runs" / "mixture", str(parent), fresh=False)
    moved = parent.rename(place / "elsewhere@2")
    check_beginning(tuned, str(moved), fresh=False)
    moved.rename(parent)
    hash_file.write_text("0" * 64 + "\n")
    with pytest.raises(UserError, match="began from small, step 10"):
        check_beginning(tuned, str(parent), fresh=False)
    shutil.rmtree(hash_file.parent)
    check_beginning(tuned, str(parent), fresh=False)


def test_a_broken_checkpoint_of_the_parent_is_passed_over(place: Path, train: Train) -> None:
    weights = next((place / PARENT / "checkpoints/step-00000010").glob("ema-*"))
    content = weights.read_bytes()[:-1]
    weights.write_bytes(content)
    done = train("--from", PARENT, "training.max_updates=1")
    assert done.code == 0, done.err
    assert "begins with the weights of small, step 5" in done.out
    assert weights.read_bytes() == content, "nothing of the parent's is touched"
    done = train("--from", f"{PARENT}@10", "--fresh")
    assert (done.code, "ema-" in done.err) == (2, True)
