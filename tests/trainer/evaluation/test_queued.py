"""A metric's command runs beside training: its scores come late, stand at their steps, and change nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from configs.components import ScoredText
from configs.evaluation import EvaluationSection, QueuedMetric
from tests.conftest import is_running, read_metrics
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun
from tests.waiting import PATIENCE, wait_until
from trainer.checkpoint.retention import retain
from trainer.checkpoint.state import TrainerState
from trainer.evaluation import scoring_process
from trainer.evaluation.outcome import Evaluation
from trainer.evaluation.queue import ScoreQueue
from trainer.evaluation.sets import HeldOutSet
from trainer.metrics.scoring import Scorer
from trainer.records.metrics import Metrics
from trainer.report import read_course
from trainer.runs.layout import MANIFEST, MANIFEST_HASH, step_folder, step_of

LENGTHS = """
import json, sys
for line in sys.stdin:
    pair = json.loads(line)
    print(json.dumps({"score": len(pair["hypothesis"]) / len(pair["references"][0])}))
"""


def answer(tmp_path: Path, code: str, *, seconds: float = PATIENCE, sets: tuple[str, ...] = ("a", "a", "b")) -> Any:
    """What becomes of a command that runs some Python."""
    request, result = tmp_path / "request.jsonl", tmp_path / "result"
    line = {"source": "s", "hypothesis": "two", "references": ["four"], "languages": ["en", "fr"]}
    request.write_text("".join(json.dumps({"set": name, **line}) + "\n" for name in sets))
    me = [sys.executable, "-I", scoring_process.__file__, str(request), str(result), str(seconds), str(os.getpid())]
    subprocess.run([*me, sys.executable, "-c", code], check=True, timeout=PATIENCE)
    return json.loads(result.read_text())


@pytest.mark.parametrize(
    "code",
    [
        LENGTHS,
        "print(0.75, 0.75, 0.75, sep='\\n')",
        'print(\'{"scores": {"a": 0.75, "b": 0.75}}\')',
        "import sys; print('0.75\\n' * 3); print('some words', file=sys.stderr)",
    ],
)
def test_scores_are_means_by_set(code: str, tmp_path: Path) -> None:
    assert answer(tmp_path, code) == {"scores": {"a": 0.75, "b": 0.75}}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise SystemExit('no model here')", "ended with exit code 1: no model here"),
        ("print('0.5')", "answered 1 lines to 3"),
        ("print('0.5\\nnan\\n0.5')", "answered b'0.5"),
        ("print('0.5\\nNaN\\n0.5')", "answered 'nan' instead of a number"),
        ("print('0.5\\ntrue\\n0.5')", "answered 'True' instead of a number"),
        ("print('0.5\\n[0]\\n0.5')", "answered '[0]' instead of a number"),
        ('print(\'{"scores": {"a": 1}}\')', "answered scores of ['a']"),
        ("import os\nwhile True: os.write(1, b'0.5' * 1000)", "bytes and was killed"),
        ("import os; os.kill(os.getpid(), 9)", "ended with exit code -9"),
        ("print('[' * 50000)", "expected a number or a JSON object per line"),
    ],
)
def test_what_is_no_score_is_a_problem(code: str, problem: str, tmp_path: Path) -> None:
    assert problem in answer(tmp_path, code)["problem"]


def test_one_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    code = f"""
import subprocess, time
child = subprocess.Popen(['sleep', '1000'])
open({str(tmp_path / "pid")!r}, 'w').write(str(child.pid))
time.sleep(1000)
"""
    assert "took longer than 5 s" in answer(tmp_path, code, seconds=5)["problem"]
    wait_until(lambda: not is_running(int((tmp_path / "pid").read_text())), "the end of what it had started")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    request, result = tmp_path / "request.jsonl", tmp_path / "result"
    request.write_text("")
    me = [sys.executable, "-I", scoring_process.__file__, str(request), str(result), "9", str(os.getpid())]
    subprocess.run([*me, "/no/such/program"], check=True, timeout=PATIENCE)
    assert "cannot be started" in json.loads(result.read_text())["problem"]


class Written(Metrics):
    """What a run would write."""

    def __init__(self) -> None:
        super().__init__(None)
        self.scores: list[tuple[int, Mapping[str, Any]]] = []
        self.events: list[Mapping[str, Any]] = []

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        self.scores.append((step, figures))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        self.events.append(figures)


def held_out(name: str, role: Literal["validation", "test"]) -> HeldOutSet:
    scorer = Scorer([], ScoredText(target_language="fr"))
    return HeldOutSet(
        name=name, languages=("en", "fr"), sources=["s"], references=[["four"]], scorer=scorer, tags=None, role=role
    )


def make_queue(
    folder: Path, code: str, *, step: int = 0, most: int = 2, series: str = "now", valid: str = "valid"
) -> tuple[ScoreQueue, Written, TrainerState]:
    metric = QueuedMetric(name="ratio", command=[sys.executable, "-c", code], most_waiting=most)
    state = TrainerState(step=step, best_by="ratio", scores={"ratio": {}}, measured={"ratio": series})
    written = Written()
    sets = [held_out(valid, "validation"), held_out("news", "test")]
    queue = ScoreQueue(
        EvaluationSection(queued=[metric]),
        folder=folder,
        held_out=sets,
        state=state,
        metrics=written,
        variables=dict(os.environ),
    )
    return queue, written, state


def evaluation() -> Evaluation:
    parts = {
        name: Evaluation(
            loss=1.0, nll=1.0, scores={}, sources=["s"], references=["four"], hypotheses=[text], seconds=0.0, role=role
        )
        for name, text, role in (("valid", "two", "validation"), ("news", "four", "test"))
    }
    return Evaluation.mean(parts)


def until(is_so: Callable[[], bool], queue: ScoreQueue) -> None:
    def polled() -> bool:
        queue.poll()
        return is_so()

    wait_until(polled, "a score")


def test_scores_stand_at_their_steps(tmp_path: Path) -> None:
    queue, written, state = make_queue(tmp_path, LENGTHS)
    for step in (10, 20):
        state.step = step
        queue.add(step, evaluation())
    assert queue.awaited == {10, 20}
    until(lambda: len(written.scores) == 2, queue)
    (first, figures), (second, _) = written.scores
    assert (first, second) == (10, 20)
    assert {key: figures[key] for key in ("ratio", "ratio/valid", "ratio/news")} == {
        "ratio": 0.75, "ratio/valid": 0.75, "ratio/news": 1.0
    }  # fmt: skip
    assert figures["series"] == "now"
    assert state.best_scores == {10: 0.75, 20: 0.75}
    assert queue.awaited == frozenset()
    assert not list((tmp_path / "eval" / "queue").iterdir())


def test_the_oldest_is_given_up_where_too_many_wait(tmp_path: Path) -> None:
    queue, written, state = make_queue(tmp_path, "import time; time.sleep(1000)")
    for step in (10, 20, 30, 40):
        queue.add(step, evaluation())
    assert queue.awaited == {10, 30, 40}, "10 runs, 30 and 40 wait"
    [event] = written.events
    assert (event["of_step"], event["metric"]) == (20, "ratio")
    assert not state.best_scores
    queue.close()


def test_what_is_awaited_is_asked_for_again_but_for_steps_that_are_gone(tmp_path: Path) -> None:
    queue, *_ = make_queue(tmp_path, "import time; time.sleep(1000)")
    for step in (10, 20):
        queue.add(step, evaluation())
    queue.close()
    again, written, state = make_queue(tmp_path, LENGTHS, step=15)
    assert again.awaited == {10}
    until(lambda: bool(written.scores), again)
    assert state.best_scores == {10: 0.75}
    assert not list((tmp_path / "eval" / "queue").iterdir())


@pytest.mark.parametrize(("series", "valid"), [("another", "valid"), ("now", "renamed")])
def test_what_is_awaited_is_given_up_where_the_evaluation_has_changed(series: str, valid: str, tmp_path: Path) -> None:
    queue, *_ = make_queue(tmp_path, "import time; time.sleep(1000)")
    queue.add(10, evaluation())
    queue.close()
    again, written, state = make_queue(tmp_path, LENGTHS, step=10, series=series, valid=valid)
    assert again.awaited == frozenset()
    again.finish(seconds=PATIENCE, stop_requested=lambda: False)
    assert not state.best_scores
    assert not written.scores
    assert [event["of_step"] for event in written.events if event["event"] == "no_score"] == [10]
    assert not list((tmp_path / "eval" / "queue").iterdir())


def test_a_score_that_came_after_the_checkpoint_is_remembered(tmp_path: Path) -> None:
    lines = [
        {"kind": "evaluation", "step": 10, "loss": 1.0, "nll": 1.0, "bleu": 9, "bleu_signature": "b", "series": "now"},
        {"kind": "train", "step": 11, "loss": 1.0},
        {"kind": "score", "step": 10, "ratio": 0.5, "ratio_signature": "c", "series": "now"},
        {"kind": "score", "step": 5, "ratio": 0.9, "ratio_signature": "c", "series": "another"},
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    *_, state = make_queue(tmp_path, LENGTHS, step=20)
    assert state.best_scores == {10: 0.5}
    assert read_course(tmp_path).evaluations[10]["ratio"] == 0.5


COMMANDS = {
    "lengths": LENGTHS,
    "slow": f"import time; time.sleep(3)\n{LENGTHS}",
    "hangs": "import time; time.sleep(1000)",
    "crashes": "raise SystemExit('no model')",
    "rubbish": "print('@' * 1000)",
}


def test_training_is_the_same_whatever_a_command_does(trained: TrainedRun, forked: Forked, tmp_path: Path) -> None:
    settings = [
        f"output={tmp_path}/runs", "training.max_updates=40", "training.log_every=1", "evaluation.every_updates=10",
        "checkpoint.every_updates=10", "training.tensorboard=false", "schedule.warmup_updates=10",
    ]  # fmt: skip
    scripts = {}
    for name, code in COMMANDS.items():
        scripts[name] = tmp_path / f"{name}.py"
        scripts[name].write_text(code)
    queued = json.dumps(
        [{"name": n, "command": [sys.executable, str(p)], "timeout_minutes": 0.1} for n, p in scripts.items()]
    )
    more = [f"evaluation.queued={queued}", "checkpoint.best_by=lengths", "evaluation.queued_end_minutes=0.15"]
    plain = forked.trainer(2, str(trained.config), *settings, "name=plain", cwd=tmp_path)
    beside = forked.trainer(2, str(trained.config), *settings, "name=beside", *more, cwd=tmp_path)
    assert (plain.code, beside.code) == (0, 0), beside.err
    losses = [[line["loss"] for line in read_metrics(tmp_path / "runs" / name)] for name in ("plain", "beside")]
    assert losses[0] == losses[1]
    run = tmp_path / "runs" / "beside"
    late = {(line["step"], key) for line in read_metrics(run, "score") for key in COMMANDS if key in line}
    assert (10, "lengths") in late
    assert {key for _, key in late} <= {"lengths", "slow"}
    assert all(line["lengths"] > 0 for line in read_metrics(run, "score") if "lengths" in line)
    failed = {line["metric"] for line in read_metrics(run, "event") if line["event"] == "no_score"}
    assert failed <= {"crashes", "rubbish", "hangs", "slow", "lengths"}
    assert not {"lengths", "slow"} & late_and_failed(run)
    assert beside.err.count("Traceback") == 0


def late_and_failed(run: Path) -> set[str]:
    """Metrics with a step that has both a score and a failure."""
    scored_ = {(line["step"], key) for line in read_metrics(run, "score") for key in COMMANDS if key in line}
    return {
        line["metric"]
        for line in read_metrics(run, "event")
        if line["event"] == "no_score" and (line["of_step"], line["metric"]) in scored_
    }


def test_what_is_awaited_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        folder = tmp_path / step_folder(step)
        folder.mkdir()
        for name in (MANIFEST, MANIFEST_HASH):
            (folder / name).touch()
    retain(tmp_path, {1: 0.1, 2: 0.2}, last=1, best=1, every=0, awaited={3})
    assert {step_of(path) for path in tmp_path.iterdir()} == {2, 3, 4}
    retain(tmp_path, {1: 0.1, 2: 0.2, 3: 0.1}, last=1, best=1, every=0)
    assert {step_of(path) for path in tmp_path.iterdir()} == {2, 4}
