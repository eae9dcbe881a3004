"""What users have: a dataset and a run of bbb3253 are read, resumed and translated with by this version."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command, Finished, read_metrics, zeromt
from tests.kept import BBB3253


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy that may be written to; its commands run in it, as they did when it was made."""
    return Path(shutil.copytree(BBB3253, tmp_path / "kept"))


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What bbb3253 itself gave."""
    found: dict[str, Any] = json.loads((BBB3253 / "expected.json").read_text())
    return found


def _run(kept: Path, *arguments: str) -> Finished:
    return Command(zeromt(*arguments), cwd=kept).finish(120)


@pytest.mark.parametrize("launch", [("train",), ("launch", "local", "--nproc", "2")], ids=["one-rank", "two-ranks"])
def test_resumes_with_the_same_updates(kept: Path, expected: dict[str, Any], launch: tuple[str, ...]) -> None:
    done = _run(kept, *launch, "small.yaml", "training.max_updates=20")
    assert done.code == 0, done.err
    lines = {str(line["step"]): line for line in read_metrics(kept / "runs" / "small")}
    assert {step: lines[step]["pairs_digest"] for step in expected["digests"]} == expected["digests"]
    assert {step: lines[step]["loss"] for step in expected["losses"]} == pytest.approx(expected["losses"], rel=1e-5)
    assert list(lines) == [str(step) for step in range(1, 21)], "the lines before the checkpoint are kept"
    _check_what_is_shown(kept / "runs" / "small", lines, done.out)


def _check_what_is_shown(run: Path, lines: dict[str, dict[str, Any]], out: str) -> None:
    """The perplexity is of the likelihood that stands before it; the months since bbb3253 are not the run's."""
    ledger = json.loads((run / "ledger.json").read_text())
    assert ledger["seconds"]["stalled"] == 0, "it had finished"
    found = re.findall(r"step 20 .* loss (\S+)  nll (\S+)  ppl\(nll\) (\S+)  norm", out)
    assert found, "the line of step 20 does not say what the perplexity is of"
    loss, nll, perplexity = map(float, found[0])
    assert nll < loss, "label smoothing is 0.1"
    assert perplexity == pytest.approx(math.exp(nll), rel=1e-3)
    assert lines["20"]["perplexity"] == pytest.approx(math.exp(lines["20"]["nll"]), rel=1e-9)


def test_translates(kept: Path, expected: dict[str, Any]) -> None:
    done = _run(kept, "translate", "runs/small", "--beam", "4", "-i", "corpus/in.en")
    assert (done.code, done.out.splitlines()) == (0, expected["translations"]), done.err


def test_scores(kept: Path, expected: dict[str, Any]) -> None:
    done = _run(kept, "translate", "runs/small", "--score", "-i", "corpus/v.en", "--target", "corpus/v.fr")
    scores = [float(line.split("\t")[0]) for line in done.out.splitlines()]
    assert scores == pytest.approx(expected["log_probabilities"], abs=2e-3), done.err


@pytest.mark.parametrize("path", ["dataset", "runs/small", "runs/small/checkpoints/step-00000005"])
def test_is_whole(kept: Path, path: str) -> None:
    done = _run(kept, "inspect", path)
    assert done.code == 0, done.err


def test_prepared_anew_it_has_the_same_bytes(kept: Path) -> None:
    """Whatever settings and filters there are meanwhile."""
    done = _run(kept, "prepare", "small.yaml", "prepare.output=anew")
    assert done.code == 0, done.err
    old, new = ({p.name: p.read_bytes() for p in (kept / name).iterdir()} for name in ("dataset", "anew"))
    indexes = [json.loads(files.pop("index.json")) for files in (old, new)]
    for index in indexes:
        del index["made_with"]  # versions of packages
    assert indexes[0] == indexes[1]
    assert old == new


def test_the_same_preparation_is_up_to_date(kept: Path) -> None:
    index = (kept / "dataset" / "index.json").read_bytes()
    done = _run(kept, "prepare", "small.yaml")
    assert done.code == 0, done.err
    assert (kept / "dataset" / "index.json").read_bytes() == index


def test_a_mixture_in_the_middle_of_an_epoch_is_refused_by_name(kept: Path) -> None:
    """Small datasets are shared out otherwise since: `--reset data` is the way, and nothing is touched before."""
    run = kept / "runs" / "mixture"
    before = {path: path.read_bytes() for path in sorted((run / "checkpoints").rglob("*")) if path.is_file()}
    done = _run(kept, "train", "runs/mixture/config.yaml", "training.max_updates=6")
    assert done.code == 2, done.out
    [line] = done.err.splitlines()
    assert re.search(r"stream.datasets: this mixture of 2 datasets was saved after update 4 of epoch 0", line), line
    assert "--reset data" in line
    assert before == {path: path.read_bytes() for path in before}
    done = _run(kept, "train", "runs/mixture/config.yaml", "training.max_updates=6", "--reset", "data")
    assert done.code == 0, done.err
    assert [line["step"] for line in read_metrics(run)] == list(range(1, 11)), "six more, counted from the reset"
