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


def test_evaluate_gives_the_score_of_training_and_of_sacrebleu(
    trained: TrainedRun, forked: Forked, tmp_path: Path
) -> None:
    evaluations = read_metrics(trained.folder, "evaluation")
    assert [e["step"] for e in evaluations] == [150, 300]
    written, output = trained.folder / "eval" / "step-00000300.hyp", tmp_path / "hypotheses"
    theirs = sacrebleu(trained.reference, written)
    assert evaluations[-1]["bleu"] == pytest.approx(theirs["score"], abs=1e-9)
    assert evaluations[-1]["bleu_signature"] == theirs["signature"]
    files = ["--source", str(trained.source), "--reference", str(trained.reference), "--output", str(output)]
    done = forked.zeromt("evaluate", str(trained.folder), *files, cwd=tmp_path)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["bleu"], report["bleu_signature"]) == (round(theirs["score"], 2), theirs["signature"])
    assert report["step"] == 300
    assert output.read_text() == written.read_text()
