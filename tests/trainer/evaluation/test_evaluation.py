"""One BLEU: that of training, of `evaluate`, and the one that sacreBLEU itself gives for the written files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_metrics
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun


def sacrebleu(reference: Path, hypotheses: Path) -> dict[str, Any]:
    """What sacreBLEU's own command says, to every digit."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypotheses), "-m", "bleu", "-w", "10"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def test_equals_sacrebleu_on_the_written_hypotheses(trained: TrainedRun) -> None:
    evaluations = read_metrics(trained.folder, "evaluation")
    assert [e["step"] for e in evaluations] == [150, 300]
    for evaluation in evaluations:
        theirs = sacrebleu(trained.reference, trained.folder / "eval" / f"step-{evaluation['step']:08d}.hyp")
        assert evaluation["bleu"] == pytest.approx(theirs["score"], abs=1e-9)
        assert evaluation["bleu_signature"] == theirs["signature"]


def test_evaluate_command_gives_the_score_of_training(trained: TrainedRun, forked: Forked, tmp_path: Path) -> None:
    last = read_metrics(trained.folder, "evaluation")[-1]
    output = tmp_path / "hypotheses"
    files = ["--source", str(trained.source), "--reference", str(trained.reference), "--output", str(output)]
    done = forked.zeromt("evaluate", str(trained.folder), *files, cwd=tmp_path)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["bleu"] == round(last["bleu"], 2)
    assert report["bleu_signature"] == last["bleu_signature"]
    assert report["step"] == 300
    assert output.read_text() == (trained.folder / "eval" / "step-00000300.hyp").read_text()
    assert report["bleu"] == round(sacrebleu(trained.reference, output)["score"], 2)
