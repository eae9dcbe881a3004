"""`--from`: a run at step 0 with the weights of another, at every stage and precision, through kills and restarts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from configs import UserError, load_run
from data_pipeline.tokenizer import Tokenizer
from tests.conftest import Finished, read_metrics
from tests.forked import Forked
from tests.trainer.stability.engine_checks import CASES
from trainer.checkpoint.format import read_whole
from trainer.ranks.distributed import World
from trainer.runs.parents import Named, check_beginning, parent_of_run
from trainer.transfer import ancestry_of, find_whole

PARENT = "runs/small"
SETTINGS = ["training.tensorboard=false", "evaluation.max_pairs=2", "training.memory_probe=false", "name=tuned"]
Train = Callable[..., Finished]


@pytest.fixture
def train(place: Path, forked: Forked) -> Train:
    def run(*arguments: str, config: str = "small.yaml") -> Finished:
        return forked.zeromt("train", config, *SETTINGS, *arguments, cwd=place)

    return run


def test_begins_anew_with_the_weights_of_another(place: Path, forked: Forked) -> None:
    """Against the way in place, from the same weights: the same updates, counted from 0."""
    more = ["training.max_updates=6", "training.ema_decay=0", "schedule.kind=linear", "evaluation.every_updates=3"]
    done = forked.trainer(2, "small.yaml", "--from", f"{PARENT}@10", *SETTINGS, *more, cwd=place)
    assert done.code == 0, done.err
    assert "begins with the weights of small, step 10" in done.out
    tuned = place / "runs" / "tuned"
    found = read_metrics(tuned)
    assert [line["step"] for line in found] == [1, 2, 3, 4, 5, 6]
    assert found[-1]["lr"] == 0, "the whole schedule"
    assert [line["step"] for line in read_metrics(tuned, "evaluation")] == [0, 3, 6]
    mean = forked.zeromt("average", PARENT, "--last", "1", "-o", "runs/mean", cwd=place)
    assert mean.code == 0, mean.err
    again = ["--reset", "data,optimizer", *SETTINGS[:-1], *more, "name=mean"]
    done = forked.trainer(2, "small.yaml", *again, cwd=place)
    assert done.code == 0, done.err
    assert [line["step"] for line in read_metrics(place / "runs" / "mean")] == [11, 12, 13, 14, 15, 16]
    for ours, theirs in zip(found, read_metrics(place / "runs" / "mean"), strict=True):
        assert (ours["loss"], ours["lr"], ours["epoch"]) == (theirs["loss"], theirs["lr"], theirs["epoch"])

    checkpoint = read_whole(tuned / "checkpoints" / "step-00000006")
    sha256 = (place / PARENT / "checkpoints/step-00000010/manifest.sha256").read_text().strip()
    expected = {"run": str(place / PARENT), "step": 10, "sha256": sha256, "weights": "ema"}
    assert checkpoint.manifest["parent"] == expected
    for shown in (tuned, checkpoint.folder):
        said = forked.zeromt("inspect", str(shown), cwd=place).out
        assert f"parent          small, step 10, {sha256[:12]}" in said
    state = checkpoint.state()["trainer"]
    assert (state["start_step"], state["schedule_start"], state["series_start"]) == (0, 0, 0)
    assert sorted(state["scores"]["bleu"]) == ["0", "3", "6"]
    parents = [line for line in read_metrics(place / PARENT, "evaluation") if line["step"] == 10]
    assert len(parents) == 1


def test_kills_and_restarts(place: Path, train: Train) -> None:
    """Before the first checkpoint the parent's weights are taken again, after it the run's own."""
    tuned = place / "runs" / "tuned"
    assert train("--from", PARENT, "training.max_updates=3").code == 0
    losses = [line["loss"] for line in read_metrics(tuned)]
    whole = (tuned / "checkpoints").rename(place / "kept")
    (tuned / "status.json").unlink()  # as after a kill before the first save
    kinds = ('"kind": "train"', '"kind": "evaluation"')
    lines = [line for line in (tuned / "metrics.jsonl").read_text().splitlines() if any(k in line for k in kinds)]
    (tuned / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    done = train("training.max_updates=3")
    assert done.code == 0, done.err
    assert "begins with the weights of small, step 10" in done.out, "the parent is known"
    assert [line["loss"] for line in read_metrics(tuned)] == losses
    assert [line["step"] for line in read_metrics(tuned, "evaluation")] == [0, 3]
    shutil.rmtree(tuned / "checkpoints")
    whole.rename(tuned / "checkpoints")
    shutil.rmtree(place / PARENT / "checkpoints")  # it is needed no more
    done = train("--from", PARENT, "training.max_updates=5")
    assert done.code == 0, done.err
    assert "resumed from" in done.out
    assert [line["step"] for line in read_metrics(tuned)] == [1, 2, 3, 4, 5]
    done = train("training.max_updates=6")
    assert done.code == 0, done.err
    manifest = read_whole(tuned / "checkpoints" / "step-00000006").manifest
    assert manifest["parent"]["step"] == 10, "checkpoints carry it on"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", f"{PARENT}@7"], "has no checkpoint of step 7"),
        (["--from", "corpus"], "has no checkpoint yet"),
        (["--from", PARENT, "name=small"], "--from: runs/small is the run itself"),
        (["--from", PARENT, "--reset", "data"], "--from: with --reset, which goes on in place"),
    ],
)
def test_refused_before_anything_is_made(place: Path, train: Train, arguments: list[str], said: str) -> None:
    done = train(*arguments)
    assert (done.code, said in done.err) == (2, True), done.err
    assert len(done.err.splitlines()) == 1
    assert not (place / "runs" / "tuned").exists()


def test_another_architecture_is_refused_field_by_field(place: Path, train: Train) -> None:
    done = train("--from", PARENT, "model.d_model=32", "model.tied_embeddings=decoder")
    assert done.code == 2
    assert "model.d_model: 32, the parent has 16" in done.err
    assert "model.tied_embeddings: 'decoder', the parent has 'three-way'" in done.err
    assert train("--from", PARENT, "training.max_updates=1").code == 0, "what was refused is no parent yet"


class TestParents:
    """Which runs may name which parent, without training."""

    @pytest.fixture
    def tuned(self, place: Path) -> Path:
        """As a run from step 10 of `runs/small` leaves it; its checkpoints are another's with that one word more."""
        tuned = Path(shutil.copytree(place / PARENT, place / "runs" / "tuned"))
        sha256 = (tuned / "checkpoints/step-00000010/manifest.sha256").read_text().strip()
        for folder in (tuned / "checkpoints").glob("step-*"):
            tree = json.loads((folder / "manifest.json").read_text())
            tree["parent"] = {"run": str(place / PARENT), "step": 10, "sha256": sha256, "weights": "model"}
            (folder / "manifest.json").write_text(json.dumps(tree))
        return tuned

    def test_the_same_is_no_news(self, place: Path, tuned: Path) -> None:
        parent = place / PARENT
        for text in (str(parent), f"{parent}@10", str(parent / "checkpoints/step-00000010")):
            check_beginning(tuned, text, fresh=False)
        moved = parent.rename(place / "elsewhere@2")
        check_beginning(tuned, str(moved), fresh=False)
        shutil.rmtree(moved / "checkpoints/step-00000010")
        moved.rename(parent)
        check_beginning(tuned, str(parent), fresh=False)  # it has gone on, say

    def test_another_is_refused(self, place: Path, tuned: Path) -> None:
        for text in (f"{PARENT}@5", "runs/mixture"):
            with pytest.raises(UserError, match=r"began from small, step 10, .* or begin anew by --fresh"):
                check_beginning(tuned, str(place / text), fresh=False)
            check_beginning(tuned, str(place / text), fresh=True)
        with pytest.raises(UserError, match="has checkpoints and began from no other run"):
            check_beginning(place / "runs" / "mixture", str(place / PARENT), fresh=False)

    def test_one_that_took_its_place_is_another(self, place: Path, tuned: Path) -> None:
        hash_file = place / PARENT / "checkpoints/step-00000010/manifest.sha256"
        hash_file.write_text("0" * 64 + "\n")
        with pytest.raises(UserError, match="began from small, step 10"):
            check_beginning(tuned, str(place / PARENT), fresh=False)

    def test_a_folder_with_an_at(self, tmp_path: Path) -> None:
        (tmp_path / "run@5").mkdir()
        assert Named.parse(str(tmp_path / "run@5")).step is None
        assert Named.parse(str(tmp_path / "run@5@7")) == Named(
            text=str(tmp_path / "run@5@7"), run=tmp_path / "run@5", step=7
        )
        assert Named.parse(str(tmp_path / "other@best")).run.name == "other@best"


def test_a_broken_checkpoint_of_the_parent_is_passed_over(place: Path, train: Train) -> None:
    weights = next((place / PARENT / "checkpoints/step-00000010").glob("ema-*"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    done = train("--from", PARENT, "training.max_updates=1")
    assert done.code == 0, done.err
    found = parent_of_run(place / "runs" / "tuned")
    assert found is not None
    assert found.step == 5
    assert weights.read_bytes() == content, "nothing of the parent's is touched"
    done = train("--from", f"{PARENT}@10", "--fresh")
    assert done.code == 2
    assert "ema-" in done.err


def begin(world: World, folder: str) -> list[list[str]]:
    """For each case the parameters of which an engine that has begun from a parent has not what it should have."""
    from trainer.build import _engine

    stored = read_whole(Path(folder) / PARENT / "checkpoints/step-00000010").stored("ema")
    (Path(folder) / "runs" / "tuned").mkdir(exist_ok=True)
    found = []
    for stage, precision in CASES:
        settings = [
            f"engine.zero_stage={stage}",
            f"engine.precision={precision}",
            f"output={folder}/runs",
            "name=tuned",
        ]
        config = load_run(f"{folder}/small.yaml", settings)
        ancestry = ancestry_of(config, f"{folder}/{PARENT}", None, world)
        engine = _engine(config, Tokenizer.load(Path(folder) / "dataset"), None, ancestry, precision, world)
        ancestry.begin(engine, world)
        wrong = []
        for state in engine.parameter_states():
            expected = stored[state.name]
            moments, average = state.moments or {}, state.ema
            is_right = average is not None and state.weight.equal(expected) and average.equal(expected)
            if not is_right or len(moments) != 2 or any(moment.any() for moment in moments.values()):
                wrong.append(state.name)
        engine.close()
        found.append(wrong)
    return found


def test_weights_are_the_parents_to_the_last_bit(place: Path, forked: Forked) -> None:
    """At every stage and precision: masters and moving average; moments are those of a new optimizer."""
    assert forked.ranks(2, begin, str(place), cwd=place) == [[[]] * len(CASES)] * 2


def test_what_another_rank_finds_deleted_is_refused_by_all(place: Path) -> None:
    """The parent may delete a checkpoint between its verification and its opening; ranks that differ would hang."""
    world = SimpleNamespace(
        rank=0,
        size=1,
        gather=lambda mine: [mine, "gone"] if mine is None else [mine],  # this rank has opened it
        from_main=lambda item, *_: item,
        on_main=lambda action, *_: action(),
    )
    with pytest.raises(UserError, match="has no whole checkpoint: gone"):
        find_whole(Named.parse(str(place / PARENT)), cast("World", world))
