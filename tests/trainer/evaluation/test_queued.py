"""A metric's command runs beside training: its scores come late, stand at their steps, and change nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from configs import load_run
from configs.evaluation import QueuedMetric
from tests.conftest import Call, Refused, is_running, read_metrics
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun
from tests.waiting import PATIENCE, wait_until
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.queue import ScoreQueue
from trainer.metrics.command import NoScoreError, Scoring
from trainer.records.metrics import Metrics

LENGTHS = """
import json, sys
for line in sys.stdin:
    pair = json.loads(line)
    print(len(pair["hypothesis"]) / len(pair["references"][0]))
"""
WITH_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen(['sleep', '1000'])
with open(sys.argv[1], 'w') as file:
    print(os.getpid(), child.pid, file=file)
time.sleep(1000)
"""


def started(code: str, *arguments: str, minutes: float = PATIENCE) -> Scoring:
    """A command that runs some Python on two lines of set a and one of b."""
    command = [sys.executable, "-c", code, *arguments]
    line = {"source": "s", "hypothesis": "two", "references": ["four"], "languages": ["en", "fr"]}
    return Scoring(
        QueuedMetric(name="x", command=command, timeout_minutes=minutes), [{"set": name, **line} for name in "aab"]
    )


def test_a_score_is_the_mean_of_a_sets_lines() -> None:
    assert started("print(1, 2, 4, sep='\\n')").scores(PATIENCE) == {"a": 1.5, "b": 4.0}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise SystemExit('no model here')", "ended with exit code 1; its last words: 'no model here'"),
        ("print('0.5')", r"answered '0\.5'; expected 3 lines of a number each"),
        ("print('0.5\\nnan\\n0.5')", r"answered '0\.5\\nnan"),
        ("print('0.5\\n[0]\\n0.5')", r"answered '0\.5\\n\[0\]"),
        ("import os; os.kill(os.getpid(), 9)", "ended with exit code 137"),
        ("import os; os.execv('/no/such/program', ['x'])", "ended with exit code 1; .*No such file"),
    ],
)
def test_what_is_no_score_is_a_problem(code: str, problem: str) -> None:
    with pytest.raises(NoScoreError, match=problem):
        started(code).scores(PATIENCE)


def test_one_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    scoring = started(WITH_A_CHILD, str(noted), minutes=1e-9)
    wait_until(lambda: noted.exists() and len(noted.read_text().split()) == 2, "its child")
    with pytest.raises(NoScoreError, match="took longer than 1e-09 minutes and was killed"):
        scoring.scores()
    wait_until(lambda: not is_running(int(noted.read_text().split()[1])), "the end of what it had started")


def test_it_ends_with_a_rank_that_is_killed_and_so_does_what_it_has_started(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    code = f"""
import time
from tests.trainer.evaluation.test_queued import WITH_A_CHILD, started
scoring = started(WITH_A_CHILD, {str(noted)!r})
time.sleep({PATIENCE})
"""
    with subprocess.Popen([sys.executable, "-c", code]) as rank:
        wait_until(lambda: noted.exists() and len(noted.read_text().split()) == 2, "the command")
        rank.kill()
    wait_until(lambda: not any(map(is_running, map(int, noted.read_text().split()))), "the end of both")


def test_a_score_that_came_after_the_checkpoint_is_remembered(tmp_path: Path) -> None:
    lines = [
        {"kind": "score", "step": 10, "ratio": 0.5, "ratio_signature": "c", "series": "now"},
        {"kind": "score", "step": 5, "ratio": 0.9, "ratio_signature": "c", "series": "another"},
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    state = TrainerState(best_by="ratio", scores={"ratio": {}}, measured={"ratio": "now"})
    ScoreQueue(load_run("debug", [f"output={tmp_path}", "name=run"]), [], state, Metrics(None))
    assert state.best_scores == {10: 0.5}


COMMANDS = {"lengths": LENGTHS, "hangs": "import time; time.sleep(1000)", "crashes": "raise SystemExit('no model')"}


def test_training_is_the_same_whatever_a_command_does(
    trained: TrainedRun, forked: Forked, call: Call, refused: Refused, tmp_path: Path
) -> None:
    """And what `zeromt evaluate` says of the last checkpoint is what was logged."""
    settings = [
        f"output={tmp_path}/runs", "training.max_updates=20", "training.log_every=1", "evaluation.every_updates=10",
        "training.tensorboard=false", "schedule.warmup_updates=10",
    ]  # fmt: skip
    of_command = {"hangs": {"timeout_minutes": 0.05}}
    queued = json.dumps(
        [{"name": n, "command": [sys.executable, "-c", code], **of_command.get(n, {})} for n, code in COMMANDS.items()]
    )
    more = [f"evaluation.queued={queued}", "checkpoint.best_by=lengths", "evaluation.queued_end_minutes=0.9"]
    plain = forked.trainer(2, str(trained.config), *settings, "name=plain", cwd=tmp_path)
    beside = forked.trainer(2, str(trained.config), *settings, "name=beside", *more, cwd=tmp_path)
    assert (plain.code, beside.code) == (0, 0), beside.err
    losses = [[line["loss"] for line in read_metrics(tmp_path / "runs" / name)] for name in ("plain", "beside")]
    assert losses[0] == losses[1]
    run = tmp_path / "runs" / "beside"
    late = {line["step"]: line["lengths"] for line in read_metrics(run, "score")}
    assert [*late] == [10, 20]
    failed = {(line["of_step"], line["metric"]) for line in read_metrics(run, "event") if line["event"] == "no_score"}
    assert failed == {(step, name) for step in (10, 20) for name in ("hangs", "crashes")}
    metric = json.dumps({"name": "lengths", "command": [sys.executable, "-c", LENGTHS]})
    done = call("evaluate", str(run), "--metrics", "bleu", metric)
    assert done.code == 0, done.err
    [figures] = json.loads(done.out)["sets"].values()
    assert figures["lengths"] == round(late[20], 4)
    assert "--metrics: lengths is a command" in refused("compare", str(run), str(run), "--metrics", metric)
