"""How far, how fast and how good a run is, from files that a job is writing or that are broken."""

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.monitoring.progress import Progress, rates, read_progress, seconds_left, share
from launcher.monitoring.run_status import Overview, RunStatus, read_overview
from launcher.monitoring.status_lines import to_json, to_lines
from launcher.slurm.queue import JobState, find_job
from trainer.runs.failure import Failure, leave_note
from trainer.runs.layout import checkpoint_folder
from trainer.runs.ledger import Ledger
from trainer.runs.metrics_file import Score


def train(step: int, *, seconds: float, tokens: int = 0) -> dict[str, Any]:
    """A line of training."""
    return {
        "kind": "train",
        "step": step,
        "total_seconds": seconds,
        "total_target_tokens": tokens,
        "seconds_per_update": 0.25,
        "tokens_per_second": 4000.0,
    }


def evaluation(step: int, bleu: float) -> dict[str, Any]:
    return {"kind": "evaluation", "step": step, "bleu": bleu, "chrf": 2 * bleu}


def write(path: Path, lines: list[dict[str, Any]], end: str = "") -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)


def checkpoint(
    folder: Path, step: int, scores: dict[int, float], *, age: float = 0.0, series: str | None = None
) -> None:
    where = checkpoint_folder(folder, step)
    where.mkdir(parents=True)
    trainer = {"best_by": "bleu", "scores": {"bleu": scores}, "measured": {"bleu": series}}
    (where / "state.json").write_text(json.dumps({"trainer": trainer}))
    for name in ("manifest.json", "manifest.sha256"):
        (where / name).write_text("{}")
        os.utime(where / name, (time.time() - age,) * 2)


def test_figures_of_a_run(tmp_path: Path) -> None:
    lines = [train(step, seconds=step / 4, tokens=1000 * step) for step in range(10, 1001, 10)]
    write(tmp_path / "metrics.jsonl", [*lines[:50], evaluation(500, 20.0), *lines[50:]], '{"kind": "train", "st')
    (tmp_path / "config.yaml").write_text("training:\n  max_updates: 3000\n  max_minutes: null\n")
    checkpoint(tmp_path, 800, {400: 21.5, 800: 19.0}, age=120)
    checkpoint(tmp_path, 900, {}, age=60)
    (tmp_path / "checkpoints" / "step-00000900" / "state.json").write_text("{")
    found = read_progress(tmp_path, [800, 900], step=1000)
    assert found.checkpoint_age == pytest.approx(60, abs=5)
    assert found == Progress(
        max_updates=3000,
        share="1,000 of 3,000 updates",
        fraction=1 / 3,
        updates_per_second=4.0,
        target_tokens_per_second=4000.0,
        seconds_left=500.0,
        checkpoint_age=found.checkpoint_age,
        last_score=Score(step=800, figures={"bleu": 19.0, "chrf": None}),
        best_score=Score(step=400, figures={"bleu": 21.5, "chrf": None}),
    )


def test_scores_of_the_current_series_alone(tmp_path: Path) -> None:
    """Of a run that goes on with another validation set."""
    lines = [{**evaluation(step, bleu), "series": "a"} for step, bleu in ((100, 100.0), (200, 99.0))]
    write(tmp_path / "metrics.jsonl", lines)
    assert scores_of(tmp_path, []) == (200, 99.0, 100, 100.0)
    checkpoint(tmp_path, 200, {100: 100.0, 200: 99.0}, series="a")
    assert scores_of(tmp_path, [200]) == (200, 99.0, 100, 100.0)
    lines.append({"kind": "event", "event": "score_series", "step": 200, "series": "b"})
    write(tmp_path / "metrics.jsonl", lines)
    assert scores_of(tmp_path, [200]) is None
    lines += [{**evaluation(step, bleu), "series": "b"} for step, bleu in ((300, 7.0), (400, 5.0))]
    write(tmp_path / "metrics.jsonl", [*lines, *(train(step, seconds=step) for step in range(401, 419))])
    assert scores_of(tmp_path, [200]) == (400, 5.0, 300, 7.0)
    checkpoint(tmp_path, 400, {250: 8.0, 300: 7.0, 400: 5.0}, series="b")
    assert scores_of(tmp_path, [200, 400]) == (400, 5.0, 250, 8.0)
    (tmp_path / "metrics.jsonl").unlink()
    assert scores_of(tmp_path, [200, 400]) == (400, 5.0, 250, 8.0)


def test_a_mean_says_what_it_is_over(tmp_path: Path) -> None:
    line = {**evaluation(500, 20.0), "mean_over": ["news", "talks"], "series": "a"}
    write(tmp_path / "metrics.jsonl", [line, train(510, seconds=1)])
    checkpoint(tmp_path, 500, {500: 20.0}, series="a")
    found = read_progress(tmp_path, [500])
    assert found.last_score is not None
    assert found.last_score.mean_over == ("news", "talks")
    shown = to_lines(dataclasses.replace(running(), progress=found))
    assert "score        BLEU 20.00, chrF 40.00 at step 500 (means over news, talks), the best so far" in shown


def scores_of(folder: Path, steps: list[int]) -> tuple[int, float, int, float] | None:
    found = read_progress(folder, steps)
    if found.last_score is None or found.best_score is None:
        assert found.last_score is found.best_score
        return None
    last, best = found.last_score, found.best_score
    assert last.figures["bleu"] is not None
    assert best.figures["bleu"] is not None
    return last.step, last.figures["bleu"], best.step, best.figures["bleu"]


def test_folder_that_holds_nothing(tmp_path: Path) -> None:
    found = read_progress(tmp_path, [])
    assert set(found.__slots__) == {name for name in found.__slots__ if getattr(found, name) is None}
    for name in ("metrics.jsonl", "config.yaml"):
        (tmp_path / name).mkdir()
    assert read_progress(tmp_path, [5]) == found


def test_rates() -> None:
    assert rates([]) == (None, None)
    assert rates([train(7, seconds=1.0)]) == (4.0, 4000.0)  # its own means
    # the run was cut back to step 10 and went on: only what follows counts
    lines = [train(14, seconds=6.0, tokens=40), train(12, seconds=5.0, tokens=20), train(30, seconds=4.0, tokens=90)]
    assert rates(lines) == (2.0, 20.0)
    assert rates([train(14, seconds=5.0), train(12, seconds=5.0)]) == (None, None)
    assert rates([{"step": 14}, {"step": 12}]) == (None, None)


def test_time_left() -> None:
    assert seconds_left({"max_updates": 100}, {"step": 50}, 5.0) == 10.0
    assert seconds_left({"max_updates": 100, "max_minutes": 1}, {"step": 50, "total_seconds": 55.0}, 5.0) == 5.0
    assert seconds_left({"max_updates": 10}, {"step": 50}, 5.0) == 0.0
    assert seconds_left({"max_target_tokens": 3000}, {"step": 50, "total_target_tokens": 1000}, 5.0) == 20.0


NEWEST = {"step": 60, "total_seconds": 166.2, "total_target_tokens": 6000}


@pytest.mark.parametrize(
    ("limits", "newest", "fraction", "text"),
    [
        ({"max_updates": 1100, "max_minutes": 10}, NEWEST, 0.277, "67 updates, 2:46 of 10:00"),
        ({"max_updates": 100, "max_minutes": 100}, NEWEST, 0.67, "67 of 100 updates"),
        ({"max_minutes": 100.5}, {**NEWEST, "total_seconds": 5555.0}, 0.921, "67 updates, 1:32:35 of 1:40:30"),
        ({"max_updates": 100, "max_target_tokens": 7000}, NEWEST, 0.857, "67 updates, 6,000 of 7,000 target tokens"),
        ({"max_updates": 100}, {**NEWEST, "limits_from": {"step": 50}}, 0.17, "67 of 150 updates"),
        ({"max_updates": 10}, {}, None, "67 updates"),
    ],
)
def test_share_is_that_of_the_nearest_limit(
    limits: dict[str, Any], newest: dict[str, Any], fraction: float | None, text: str
) -> None:
    found = share(limits, newest, 67)
    assert found == (fraction and pytest.approx(fraction, abs=1e-3), text)
    for limits, rate in (({}, 5.0), ({"max_updates": 100}, None), ({"max_updates": "many"}, 5.0)):
        assert seconds_left(limits, {"step": 50}, rate) is None


def fake_squeue(folder: Path, text: str) -> str:
    """A queue with one job in one state. tests/slurm has the real one."""
    script = folder / "squeue"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo 'RUNNING|None|1-02:03:04'", JobState(id="7", state="RUNNING", time_left="1-02:03:04")),
        ("echo 'PENDING|Resources|UNLIMITED'", JobState(id="7", state="PENDING", reason="Resources")),
        ("exit 0", JobState(id="7", state="GONE")),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", JobState(id="7", state="GONE")),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", JobState(id="7", state="UNKNOWN")),
    ],
)
def test_job_of_the_queue(tmp_path: Path, answer: str, expected: JobState) -> None:
    assert find_job("7", fake_squeue(tmp_path, answer)) == expected


def test_no_job_and_no_squeue(tmp_path: Path) -> None:
    assert find_job("7", str(tmp_path / "none")) == JobState(id="7", state="UNKNOWN")
    for job_id in ("", "7; touch x", "--help", "7\n8"):
        assert find_job(job_id, fake_squeue(tmp_path, "echo RUNNING")) is None


def running(**changes: Any) -> Overview:
    status: dict[str, Any] = {
        "run": "runs/x", "state": "running", "stop_requested": False, "stop_reason": None, "step": 1000,
        "updated": None, "pid": None, "host": None, "error": None, "checkpoints": [100, 200, 300, 400, 500, 600],
        "ledger": None, "refusal": None, "stuck": [],
    } | changes  # fmt: skip
    figures = Progress(
        max_updates=3000,
        share="67 updates, 2:46 of 10:00",
        fraction=0.2767,
        updates_per_second=4.0,
        target_tokens_per_second=12345.6,
        seconds_left=500.0,
        checkpoint_age=60.0,
        last_score=Score(step=800, figures={"bleu": 19.0, "chrf": 40.0}),
        best_score=Score(step=400, figures={"bleu": 21.5, "chrf": None}),
    )
    failure = Failure(rank=3, host="far", time=time.time() - 7200, message="ValueError: x\ny", traceback="long")
    job = JobState(id="7", state="RUNNING", time_left="2:03:04")
    return Overview(status=RunStatus(**status), progress=figures, job=job, last_failure=failure)


def test_lines_for_people() -> None:
    assert to_lines(running()) == [
        "run          runs/x",
        "state        running",
        "job          7 RUNNING, 2:03:04 to its time limit",
        "done         67 updates, 2:46 of 10:00 (27.7%)",
        "rate         4 updates/s, 12,346 target tokens/s",
        "time left    8 min",
        "score        BLEU 19.00, chrF 40.00 at step 800; best: BLEU 21.50 at step 400",
        "last failure rank 3 on far, 2.0 h ago: ValueError: x",
        "checkpoints  600 (60 s ago), 500, 400, 300, 200 and 1 older",
    ]
    stopped = to_lines(running(state="stopped", stop_reason="SIGUSR1", error="a\nb"))
    assert "state        stopped (by SIGUSR1)" in stopped
    assert "error        a; b" in stopped
    assert not any(line.startswith(("rate", "time left")) for line in stopped)


def test_json_for_programs() -> None:
    tree = json.loads(json.dumps(to_json(running()), allow_nan=False))
    assert (tree["step"], tree["max_updates"], tree["seconds_left"]) == (1000, 3000, 500.0)
    assert tree["job"] == {"id": "7", "state": "RUNNING", "reason": None, "time_left": "2:03:04"}
    assert tree["best_score"] == {"step": 400, "bleu": 21.5, "chrf": None, "series": None}
    assert set(tree["last_failure"]) == {"rank", "host", "time", "message"}


def test_running_on_another_machine_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    written = {"state": "running", "host": "elsewhere", "pid": 1, "job_id": "7"}
    (tmp_path / "status.json").write_text(json.dumps(written))
    fake_squeue(tmp_path, "exit 0")
    assert read_overview(tmp_path).status.state == "died"
    fake_squeue(tmp_path, "echo 'RUNNING|None|5:00'")
    assert read_overview(tmp_path).status.state == "running"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_broken_files_never_keep_it_from_answering(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    ledger = Ledger(folder / "ledger.json")
    ledger.write()
    checkpoint(folder, 20, {10: 5.0})
    write(folder / "metrics.jsonl", [train(10, seconds=1.0), evaluation(10, 5.0), train(20, seconds=2.0)])
    (folder / "config.yaml").write_text("training: {max_updates: 100}")
    (folder / "status.json").write_text(
        '{"state": "failed", "launch_id": "L", "updated": 5, "step": 20, "error": null}'
    )
    leave_note(folder, "L", Failure(rank=0, host="h", time=1.0, message="m"))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), max_size=3)):
        content = bytearray(path.read_bytes() or b"x")
        where = data.draw(st.integers(0, 9999)) % len(content)
        choice = data.draw(st.sampled_from(["cut", "flip", "nan", "number", "list"]))
        if choice == "flip":
            content[where] ^= data.draw(st.integers(1, 255))
        else:
            whole = {"nan": b'{"updated": NaN, "training": NaN}', "number": b"5", "list": b"[[1]]"}
            content = bytearray(whole.get(choice, bytes(content[:where])))
        path.write_bytes(content)
    found = read_overview(folder)
    assert to_lines(found)[0] == f"run          {folder}"
    json.dumps(to_json(found), allow_nan=False)


def test_a_clock_that_is_ahead_and_a_name_with_lines(tmp_path: Path) -> None:
    folder = tmp_path / "a\nstate        running"
    checkpoint(folder, 5, {}, age=-7300)
    (folder / "status.json").write_text(
        json.dumps({"state": "failed", "error": "x\x1b[2J", "updated": time.time() + 7300})
    )
    lines = to_lines(read_overview(folder))
    assert lines[0] == f"run          {tmp_path}/a\\nstate        running"
    assert lines[1:] == [
        "state        failed (written 2.0 h ahead of this clock)",
        "error        x\\x1b[2J",
        "checkpoints  5 (2.0 h ahead of this clock)",
    ]


def test_a_run_that_was_imported_was_never_started(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, {})
    assert to_lines(read_overview(tmp_path))[1] == "state        empty (never started)"
