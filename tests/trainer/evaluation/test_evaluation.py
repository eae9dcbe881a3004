"""One BLEU: the same at any world size and stage, and the one that sacreBLEU itself gives for the written files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start, ranks, read_metrics, zeromt
from tests.trainer.conftest import TrainedRun


def sacrebleu(reference: Path, hypotheses: Path) -> dict[str, Any]:
    """What sacreBLEU's own command says, to every digit."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypotheses), "-m", "bleu", "-w", "10"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


@pytest.fixture(scope="module")
def everywhere(trained: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """Scores by ranks and stage."""
    from tests.conftest import Command

    root = tmp_path_factory.mktemp("everywhere")
    scores = {}
    for num_ranks in (1, 2):
        shutil.copytree(trained.folder, root / f"{num_ranks}" / "heart")
        config = root / f"{num_ranks}.yaml"
        config.write_text(trained.config.read_text().replace(f"{trained.folder.parent}", f"{root}/{num_ranks}"))
        output = root / f"{num_ranks}.json"
        arguments = ["tests.trainer.evaluation.score_everywhere", str(config), str(output)]
        done = Command(ranks(num_ranks, *arguments), cwd=root).finish()
        assert done.code == 0, done.err[-3000:]
        scores[num_ranks] = json.loads(output.read_text())
    return scores


def test_same_score_at_any_world_size_and_stage(everywhere: dict[int, dict[str, Any]]) -> None:
    first = everywhere[1]["0"]
    assert first["bleu"] > 20, "a model that knows nothing would agree with itself about nothing"
    for num_ranks in (1, 2):
        for stage in range(4):
            score = everywhere[num_ranks][str(stage)]
            assert score["hypotheses"] == first["hypotheses"], (num_ranks, stage)
            assert score["bleu"] == first["bleu"]
            assert score["chrf"] == first["chrf"]
            assert score["loss"] == pytest.approx(first["loss"], rel=1e-6)


def test_equals_sacrebleu_on_the_written_hypotheses(trained: TrainedRun) -> None:
    evaluations = read_metrics(trained.folder, "evaluation")
    assert [e["step"] for e in evaluations] == [150, 300]
    for evaluation in evaluations:
        theirs = sacrebleu(trained.reference, trained.folder / "eval" / f"step-{evaluation['step']:08d}.hyp")
        assert evaluation["bleu"] == pytest.approx(theirs["score"], abs=1e-9)
        assert evaluation["bleu_signature"] == theirs["signature"]


def test_evaluate_command_gives_the_score_of_training(
    trained: TrainedRun, everywhere: dict[int, dict[str, Any]], start: Start, tmp_path: Path
) -> None:
    output = tmp_path / "hypotheses"
    files = ["--source", str(trained.source), "--reference", str(trained.reference), "--output", str(output)]
    done = start(*zeromt("evaluate", str(trained.folder), *files)).finish()
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["bleu"] == round(everywhere[1]["0"]["bleu"], 2)
    assert report["bleu_signature"] == everywhere[1]["0"]["signature"]
    assert report["step"] == 300
    assert output.read_text().splitlines() == everywhere[1]["0"]["hypotheses"]
    assert report["bleu"] == round(sacrebleu(trained.reference, output)["score"], 2)


@pytest.mark.parametrize(
    ("source", "reference", "said"),
    [
        ("a\nb\n", "a\n", "2 lines"),
        ("", "", "is empty"),
        ("a\n", None, "No such file"),
    ],
)
def test_evaluate_refuses_bad_test_sets(
    source: str, reference: str | None, said: str, trained: TrainedRun, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text(source)
    if reference is not None:
        (tmp_path / "reference").write_text(reference)
    done = start(*zeromt("evaluate", str(trained.folder), "--source", "source", "--reference", "reference")).finish()
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("zeromt: error: ")
    assert said.lower() in done.err.lower()
