"""`zeromt batch` shows what the run trained on, whatever it has been through."""

import json
from pathlib import Path

import pytest

from tests.conftest import Call, Refused, read_metrics
from tests.everything import LAST, everything
from tests.forked import Forked
from zeromt.inspecting.batch import logged_update
from zeromt.inspecting.replay import find_update


@pytest.fixture(scope="module")
def whole(forked: Forked) -> Path:
    return everything(forked)


def test_the_data_are_gone_through_from_the_last_save_only(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole.parents[1])
    assert [find_update(whole, step).replayed_from for step in (1, 5, 6, 27)] == [0, 0, 5, 25]


def test_losses_add_up_to_the_logged_one(place: Path, forked: Forked, call: Call) -> None:
    """Where no dropout is in them."""
    done = forked.trainer(1, "small.yaml", "model.dropout=0", "training.max_updates=11", cwd=place)
    assert done.code == 0, done.err
    done = call("batch", "runs/small", "11", "--loss", "--json", cwd=place)
    pairs = [json.loads(line) for line in done.out.splitlines()]
    mean = sum(pair["loss"] for pair in pairs) / sum(pair["target_tokens"] for pair in pairs)
    line = logged_update(place / "runs" / "small", 11)
    assert line is not None
    assert mean == pytest.approx(line["loss"], rel=1e-5)
    assert all(len(pair["source"]) > 0 for pair in pairs)


def test_as_text(whole: Path, call: Call) -> None:
    done = call("batch", "runs/everything", "26", "--loss", cwd=whole.parents[1])
    assert done.code == 0, done.err
    head = [line for line in done.out.splitlines() if line.startswith("#")]
    assert head[0].startswith("# update 26 of ")
    assert head[2].endswith("equal to that of metrics.jsonl")
    assert head[3].startswith("# loss ")
    assert head[-1].split("\t")[0] == "#pair"
    [pairs] = [line["pairs"] for line in read_metrics(whole) if line["step"] == 26]
    assert len(done.out.splitlines()) - len(head) == pairs


def test_refused(whole: Path, refused: Refused) -> None:
    said = refused("batch", "runs/everything", "28", cwd=whole.parents[1])
    assert said.startswith(f"UPDATE: 28, and runs/everything has made {LAST}")
    said = refused("batch", "runs/everything", "5", "--loss", cwd=whole.parents[1])
    assert "has no whole checkpoint before update 5: the first that is kept is of step" in said


def test_another_order_is_told(place: Path, refused: Refused) -> None:
    """As where a later version deals otherwise: nobody is shown pairs that were not trained on."""
    path = place / "runs" / "small" / "history.jsonl"
    path.write_text(path.read_text().replace("seed: 1", "seed: 2").replace('"seed": 1', '"seed": 2'))
    said = refused("batch", "runs/small", "7", cwd=place)
    assert "its pairs cannot be found again: metrics.jsonl has another digest" in said
    path.unlink()
    said = refused("batch", "runs/small", "7", cwd=place)
    assert "history.jsonl does not say where the data stood before update 7" in said
