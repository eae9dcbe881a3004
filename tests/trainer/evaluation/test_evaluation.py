"""One BLEU: the same at any world size and stage, and the one that sacreBLEU itself gives for the written files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from configs import load_run
from tests.conftest import Refused, read_metrics
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun
from tests.trainer.evaluation.everywhere import Everywhere, on_one_and_two
from trainer.build import build
from trainer.ranks.distributed import World

STAGES = {1: (0, 3), 2: (2, 3)}
"""By number of ranks."""


def sacrebleu(reference: Path, hypotheses: Path) -> dict[str, Any]:
    """What sacreBLEU's own command says, to every digit."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypotheses), "-m", "bleu", "-w", "10"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def score_everywhere(world: World, config: str) -> list[dict[str, Any]]:
    """As one of any number of ranks: the scores of one checkpoint at every stage; see test_sets.py for several sets."""
    scores = []
    for stage in STAGES[world.size]:
        # parameters are released at once, as those of a large model are
        zero = "{stage3_max_live_parameters: 0, stage3_max_reuse_distance: 0, stage3_param_persistence_threshold: 0}"
        extra = [f"engine.zero_optimization={zero}"] if stage == 3 else []
        # a run that has reached its limit has nothing to do, and is not built
        run = load_run(
            config,
            [f"engine.zero_stage={stage}", "training.tensorboard=false", "training.max_updates=301", *extra],
        )
        built = build(run, world, stop_requested=lambda: False)
        assert built.resumed_step == 300
        evaluation = built.evaluator.evaluate(built.context.engine, step=300)
        assert evaluation is not None
        scores.append(
            {
                "bleu": evaluation.scores["bleu"].value,
                "chrf": evaluation.scores["chrf"].value,
                "signature": evaluation.scores["bleu"].signature,
                "loss": evaluation.loss,
                "hypotheses": list(evaluation.hypotheses),
            }
        )
        built.close()
    return scores


@pytest.fixture(scope="module")
def everywhere(trained: TrainedRun, forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Everywhere:
    """Scores by ranks and stage."""
    root = tmp_path_factory.mktemp("everywhere")
    return on_one_and_two(trained, forked, root, score_everywhere)


def test_same_score_at_any_world_size_and_stage(everywhere: Everywhere) -> None:
    first = everywhere[1][0]
    assert first["bleu"] > 20, "a model that knows nothing would agree with itself about nothing"
    for num_ranks, stages in STAGES.items():
        for stage, score in zip(stages, everywhere[num_ranks], strict=True):
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
    trained: TrainedRun, everywhere: Everywhere, forked: Forked, tmp_path: Path
) -> None:
    output = tmp_path / "hypotheses"
    files = ["--source", str(trained.source), "--reference", str(trained.reference), "--output", str(output)]
    done = forked.zeromt("evaluate", str(trained.folder), *files, cwd=tmp_path)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["bleu"] == round(everywhere[1][0]["bleu"], 2)
    assert report["bleu_signature"] == everywhere[1][0]["signature"]
    assert report["step"] == 300
    assert output.read_text().splitlines() == everywhere[1][0]["hypotheses"]
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
    source: str, reference: str | None, said: str, trained: TrainedRun, refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text(source)
    if reference is not None:
        (tmp_path / "reference").write_text(reference)
    assert said in refused("evaluate", str(trained.folder), "--source", "source", "--reference", "reference")
