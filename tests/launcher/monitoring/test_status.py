"""`zeromt status`: what a run's folder says, also while a job writes it, and where it is broken or a stranger's."""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.monitoring.look import Overview, read_overview, runs_in
from launcher.monitoring.show import lines_of, table
from launcher.slurm.queue import JobState, find_job
from tests.conftest import Call, Refused
from trainer.runs.failure import Failure, leave_note
from trainer.runs.layout import checkpoint_folder
from trainer.runs.ledger import Ledger
from trainer.runs.status import Progress, write_status

PROGRESS = Progress(
    share="67 updates, 02:46 of 10:00",
    fraction=0.2767,
    seconds_left=500.0,
    updates_per_second=0.1234,
    target_tokens_per_second=12345.6,
    train_loss=5.067,
    phase="last",
    last_score="BLEU 19.00 at step 60",
    best_score="BLEU 21.50 at step 40",
)
HERE = {"pid": os.getpid(), "host": os.uname().nodename}


def checkpoint(run: Path, step: int, *, age: float = 0.0, is_whole: bool = True) -> None:
    folder = checkpoint_folder(run, step)
    folder.mkdir(parents=True)
    for name in ("manifest.json", "manifest.sha256") if is_whole else ("manifest.json",):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)


def rewrite(run: Path, **changes: Any) -> None:
    """As if it had been written otherwise."""
    path = run / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that trains, as this process does for a while, and has seen much."""
    run = tmp_path / "runs" / "x"
    for step in (20, 60, 80):
        checkpoint(run, step, age=610, is_whole=step < 80)
    write_status(run, "running", step=67, progress=PROGRESS)
    ledger = Ledger(run / "ledger.json")
    ledger.add("productive", 90)
    ledger.add("saving", 30)
    ledger.write()
    leave_note(run, "L", Failure(rank=3, host="far", time=time.time() - 7200, message="ValueError: y\nz"))
    (run / "STOP").touch()
    return run


def test_a_line_for_each_thing_that_is_known(run: Path) -> None:
    seen = replace(read_overview(run), job=JobState(id="7", state="RUNNING", time_left="2:03:04"))
    assert lines_of(seen) == [
        f"run          {run}",
        f"state        running (written 0 s ago, process {os.getpid()} on {os.uname().nodename}, asked to stop)",
        "job          7 RUNNING, 2:03:04 to its time limit",
        "done         67 updates, 02:46 of 10:00 (27.7%)",
        "phase        last",
        "rate         0.123 updates/s, 12,346 target tokens/s",
        "time left    8 min",
        "score        BLEU 19.00 at step 60",
        "best         BLEU 21.50 at step 40",
        "last failure rank 3 on far: ValueError: y, 2.0 h ago",
        "checkpoint   step 60, 10 min ago",
        "time         2 min, goodput 75.0%: productive 90 s, saving 30 s",
    ]


def test_an_end_keeps_the_progress_and_says_why(run: Path) -> None:
    write_status(run, "stopped", step=70, stop_reason="SIGUSR1")
    lines = lines_of(read_overview(run))
    assert "state        stopped (SIGUSR1, written 0 s ago)" in lines
    assert "done         67 updates, 02:46 of 10:00 (27.7%)" in lines
    assert not any(line.startswith(("rate", "time left")) for line in lines)
    rewrite(run, state="failed", error="rank 1: ValueError: a\nb")
    assert "error        rank 1: ValueError: a; b" in lines_of(read_overview(run))


def test_json_for_programs(run: Path, call: Call) -> None:
    tree = json.loads(call("status", str(run), "--json").out)
    assert (tree["state"], tree["step"], tree["seconds_left"], tree["checkpoint"]) == ("running", 67, 500.0, 60)
    assert (tree["last_failure"]["host"], tree["job"], tree["ledger"]["goodput"]) == ("far", None, 0.75)
    [row] = json.loads(call("status", str(run.parent), "--json").out)
    assert {**row, "checkpoint_age": 0} == {**tree, "checkpoint_age": 0}


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ({**HERE, "pid": 2**22 - 1}, "died"),
        (HERE, "running"),  # it may be on a file system without locks
        ({**HERE, "host": "elsewhere"}, "died"),
    ],
)
def test_whether_its_processes_are_there(run: Path, written: dict[str, Any], state: str) -> None:
    rewrite(run, **written)
    assert read_overview(run).state == state


def test_never_started(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, age=-7300)
    (tmp_path / "status.json").write_text("{")
    shown = ["state        empty (never started)", "checkpoint   step 5, 2.0 h ahead of this clock"]
    assert lines_of(read_overview(tmp_path))[1:] == shown


def test_a_name_with_lines(tmp_path: Path) -> None:
    folder = tmp_path / "a\nstate        running"
    write_status(folder, "failed", error="x\x1b[2J")
    lines = lines_of(read_overview(folder))
    assert lines[0] == f"run          {tmp_path}/a\\nstate        running"
    assert lines[2] == "error        x\\x1b[2J"


def fake(folder: Path, name: str, text: str) -> None:
    """One of SLURM's commands. tests/slurm has the real ones."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_running_on_another_machine_without_locks(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    rewrite(run, host="elsewhere", job_id="7")
    for answer, state, job in (("exit 0", "died", None), ("echo 'RUNNING|None|5:00'", "running", "RUNNING")):
        fake(tmp_path, "squeue", answer)
        tree = read_overview(run, asks_slurm=False).to_json()
        assert (tree["state"], tree["job"] and tree["job"]["state"]) == (state, job)


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
    fake(tmp_path, "squeue", answer)
    assert find_job("7", str(tmp_path / "squeue")) == expected
    assert find_job("7; touch x", str(tmp_path / "squeue")) is None
    assert find_job("7", str(tmp_path / "none")) == JobState(id="7", state="UNKNOWN")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_broken_files_never_keep_it_from_answering(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = tmp_path_factory.mktemp("broken")
    checkpoint(run, 20)
    Ledger(run / "ledger.json").write()
    write_status(run, "failed", step=20, launch_id="L", progress=PROGRESS)
    leave_note(run, "L", Failure(rank=0, host="h", time=1.0, message="m"))
    files = sorted(path for path in run.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), max_size=3)):
        content = bytearray(path.read_bytes() or b"x")
        where = data.draw(st.integers(0, 9999)) % len(content)
        choice = data.draw(st.sampled_from(["cut", "flip", "nan", "types", "number", "list"]))
        if choice == "flip":
            content[where] ^= data.draw(st.integers(1, 255))
        else:
            types = b'{"state": [], "step": "x", "updated": 1, "progress": {"fraction": "x", "share": 5, "phase": NaN}}'
            whole = {"nan": b'{"updated": NaN, "state": NaN}', "types": types, "number": b"5", "list": b"[[1]]"}
            content = bytearray(whole.get(choice, bytes(content[:where])))
        path.write_bytes(content)
    seen = read_overview(run)
    assert lines_of(seen)[0] == f"run          {run}"
    assert table(run.parent, [seen], width=200)
    json.dumps(seen.to_json())


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs: one ended by its clock, one in a folder of several that died, and one that never trained."""
    runs = tmp_path / "runs"
    died = Progress(share="1,000 of 3,000 updates", fraction=1 / 3, best_score="BLEU 21.50 at step 400")
    for age, (name, state, progress) in enumerate(
        (
            ("a-run-with-a-name-of-many-words", "finished", replace(PROGRESS, fraction=1.0)),
            ("rates/lr-1", "running", died),
            ("new", "refused", None),
        )
    ):
        (runs / name).mkdir(parents=True)
        write_status(runs / name, state, progress=progress)
        rewrite(runs / name, updated=time.time() - 60 * age, host="elsewhere")
        os.utime(runs / name / "status.json", (time.time() - 60 * age,) * 2)
    return runs


def seen_in(folder: Path) -> list[Overview]:
    return [read_overview(run, asks_slurm=False) for run in runs_in(folder)]


def test_a_row_a_run(runs: Path) -> None:
    rows = [re.split("  +", line) for line in table(runs, seen_in(runs), width=200).splitlines()]
    assert rows == [
        ["run", "state", "done", "of", "loss", "best", "updates/s", "written", "time left"],
        ["a-run-with-a-name-of-ma…", "finished", "100%", "67 updates, 02:46 of 10:00", "5.067", "BLEU 21.50 at step 40",
         "0.123", "0 s ago", "-"],
        ["rates/lr-1", "died", "33%", "1,000 of 3,000 updates", "-", "BLEU 21.50 at step 400", "-", "60 s ago", "-"],
        ["new", "refused", "-", "-", "-", "-", "-", "2 min ago", "-"],
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "left_out"), [(90, {"of", "updates/s", "written"}), (130, {"written"})])
def test_as_much_as_fits(runs: Path, width: int, left_out: set[str]) -> None:
    lines = table(runs, seen_in(runs), width=width).splitlines()
    assert max(map(len, lines)) <= width
    names = {"run", "state", "done", "of", "loss", "best", "updates/s", "written", "time left"}
    assert {*re.split("  +", lines[0])} == names - left_out


def test_of_the_folder_or_of_none(runs: Path, tmp_path: Path, call: Call, refused: Refused) -> None:
    statuses = json.loads(call("status", "--json").out)
    assert [run["run"] for run in statuses] == ["runs/a-run-with-a-name-of-many-words", "runs/rates/lr-1", "runs/new"]
    (tmp_path / "none").mkdir()
    assert "there is no run in ." in refused("status", cwd=tmp_path / "none")
