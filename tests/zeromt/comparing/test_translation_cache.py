"""Nothing is decoded twice, and nothing is taken for what it is not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Call, Finished
from tests.small import small_runs
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import TrainedModel, load_checkpoint

DECODES = "translating"
QUICK = ("--json", "--bootstrap", "0")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_runs(), tmp_path / "kept"))


def report(call: Call, kept: Path, *arguments: str) -> tuple[dict[str, Any], Finished]:
    done = call("compare", "runs/small", *QUICK, *arguments, cwd=kept)
    assert done.code == 0, done.err
    return json.loads(done.out), done


def test_what_is_decoded_is_kept_by_checkpoint_and_search(call: Call, kept: Path) -> None:
    first, done = report(call, kept)
    assert f"{DECODES} dataset, 20 lines" in done.err, "training has evaluated on 10 of them"
    [file] = first["sets"][0]["files"]
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 20
    again, done = report(call, kept)
    assert DECODES not in done.err
    assert again == first
    other, done = report(call, kept, "--beam", "3")
    assert DECODES in done.err
    assert other["sets"][0]["files"] != first["sets"][0]["files"]
    _, done = report(call, kept, "--raw-weights")
    assert DECODES in done.err
    Path(file).write_text("".join(f"{line}\n" for line in lines[1:]), encoding="utf-8")
    mended, done = report(call, kept)
    assert DECODES in done.err, "the file is not what was written"
    assert mended == first
    older = call("compare", "runs/small/checkpoints/step-00000005", *QUICK, cwd=kept)
    assert DECODES in older.err
    assert json.loads(older.out)["sets"][0]["files"][0].startswith(str(kept / "runs" / "small" / "eval" / "kept"))


def test_evaluate_and_report_share_them(call: Call, kept: Path) -> None:
    done = call("evaluate", "runs/small", "--set", "{name: valid, prepared: valid}", cwd=kept)
    assert done.code == 0, done.err
    _, done = report(call, kept)
    assert DECODES not in done.err


def test_a_run_that_cannot_be_written_is_reported_all_the_same(call: Call, kept: Path) -> None:
    shutil.rmtree(kept / "runs" / "small" / "eval")
    (kept / "runs" / "small" / "eval").write_text("no folder")
    found, _ = report(call, kept)
    assert found["sets"][0]["files"] == [None]
    assert len(found["sets"][0]["scores"]) == 2


def test_a_checkpoint_that_is_deleted_meanwhile_gives_way_to_the_newest(
    call: Call, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a run that goes on."""

    def delete_first(checkpoint: Checkpoint, **how: Any) -> TrainedModel:
        if checkpoint.manifest["step"] == 10:
            shutil.rmtree(checkpoint.folder)
        return load_checkpoint(checkpoint, **how)

    monkeypatch.setattr("zeromt.comparing.hypotheses.load_checkpoint", delete_first)
    found, _ = report(call, kept)
    assert [run["step"] for run in found["runs"]] == [5]
    assert len(found["sets"]) == 1
