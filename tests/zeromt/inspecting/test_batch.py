"""`zeromt batch` shows what the run trained on, whatever it has been through."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Refused, read_pairs
from tests.forked import Forked
from tests.small import small_runs
from zeromt.inspecting.batch import logged_update
from zeromt.inspecting.found import find_update

Pairs = dict[tuple[int, int], list[int]]


def found_pairs(run: Path, step: int) -> Pairs:
    found = find_update(run, step)
    return {(step, m.lane): m.pair_ids.tolist() for m in found.micro_batches}


def recorded(run: Path, step: int) -> Pairs:
    return {key: pairs for key, pairs in read_pairs(run).items() if key[0] == step}


def batch(forked: Forked, run: Path, step: int, *more: str) -> list[dict[str, Any]]:
    done = forked.zeromt("batch", str(run), str(step), "--json", *more, cwd=run)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("step", [1, 60, 61, 64, 100, 103])
def test_pairs_are_those_that_were_recorded(resumed: Path, step: int) -> None:
    assert found_pairs(resumed, step) == recorded(resumed, step)


def test_the_data_are_gone_through_from_the_last_save_only(resumed: Path) -> None:
    assert [find_update(resumed, step).found_from for step in (1, 61, 100)] == [0, 60, 99]


def test_pairs_with_another_digest_are_refused(tmp_path: Path, refused: Refused) -> None:
    """What is found is then not what was trained on."""
    shutil.copytree(small_runs(), tmp_path, dirs_exist_ok=True)
    log = tmp_path / "runs" / "mixture" / "metrics.jsonl"
    log.write_text(log.read_text().replace('"pairs_digest": ', '"pairs_digest": 1, "was": '))
    said = refused("batch", "runs/mixture", "1")
    assert said.startswith("UPDATE: 1: its pairs cannot be found again: metrics.jsonl has another digest of them")


def test_losses_add_up_to_the_logged_one(resumed: Path, forked: Forked) -> None:
    pairs = batch(forked, resumed, 100, "--loss")
    mean = sum(pair["loss"] for pair in pairs) / sum(pair["target_tokens"] for pair in pairs)
    line = logged_update(resumed, 100)
    assert line is not None
    assert mean == pytest.approx(line["loss"], rel=1e-5)
    assert [p["pair"] for p in pairs] == [i for _, ids in sorted(recorded(resumed, 100).items()) for i in ids]
    assert all(len(pair["source"]) > 0 for pair in pairs)


def test_as_text(resumed: Path, forked: Forked) -> None:
    done = forked.zeromt("batch", str(resumed), "100", "--loss", cwd=resumed)
    assert done.code == 0, done.err
    head = [line for line in done.out.splitlines() if line.startswith("#")]
    assert head[0].startswith("# update 100 of ")
    assert head[2].endswith("equal to that of metrics.jsonl")
    assert head[3].startswith("# loss ")
    assert head[-1].split("\t")[0] == "#pair"
    assert len(done.out.splitlines()) - len(head) == sum(map(len, recorded(resumed, 100).values()))


def test_refused(resumed: Path, refused: Refused) -> None:
    assert refused("batch", str(resumed), "104") == f"UPDATE: 104, and {resumed} has made 103; allowed is 1 to 103"
    assert "has no whole checkpoint before update 5: the first that is kept is of step" in refused(
        "batch", str(resumed), "5", "--loss"
    )


def test_another_order_is_told(resumed: Path, tmp_path: Path, refused: Refused) -> None:
    """As where a later version deals otherwise: nobody is shown pairs that were not trained on."""
    run = Path(shutil.copytree(resumed, tmp_path / "r"))
    path = run / "history.jsonl"
    path.write_text(path.read_text().replace("seed: 1", "seed: 2").replace('"seed": 1', '"seed": 2'))
    assert "its pairs cannot be found again: metrics.jsonl has another digest" in refused("batch", str(run), "100")
    path.unlink()
    assert "history.jsonl does not say where the data stood before update 100" in refused("batch", str(run), "100")
