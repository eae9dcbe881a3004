"""The pure parts of `zeromt launch local`: command line, environment, number of processes, exit code."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from configs import UserError, load_run
from launcher.agents.attempts import Restarts
from launcher.agents.job import (
    Job,
    child_environment,
    choose_processes,
    outcome,
    torchrun_command,
)
from launcher.machine.cores import num_cores
from launcher.start.datasets import check_datasets
from trainer.runs.status import Status, read_status


def job(num_processes: int) -> Job:
    return Job(
        config="configs/runs/a b.yaml",
        overrides=("seed=2", "name=x;y"),
        num_processes=num_processes,
        folder=Path("runs/demo"),
        shutdown_seconds=1800,
    )


def test_golden_command() -> None:
    assert torchrun_command(job(3), "20260101-120000-abcd", python="/venv/bin/python") == [
        "/venv/bin/python",
        "-m",
        "launcher.agents.agent",
        "--nnodes=1",
        "--nproc-per-node=3",
        "--rdzv-backend=zeromt",
        "--rdzv-id=20260101-120000-abcd",
        "--max-restarts=0",
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
        "--log-dir=runs/demo/logs",
        "--redirects=1:3,2:3",
        "-m",
        "trainer",
        "configs/runs/a b.yaml",
        "seed=2",
        "name=x;y",
    ]


@pytest.mark.parametrize(
    ("num_processes", "expected"),
    [
        (1, []),
        (2, ["--redirects=1:3"]),
        (10, ["--redirects=" + ",".join(f"{r}:3" for r in range(1, 10))]),
        (16, ["--redirects=3", "--tee=0:3"]),
    ],
)
def test_where_the_ranks_write(num_processes: int, expected: list[str]) -> None:
    found = torchrun_command(job(num_processes), "id")
    assert [option for option in found if option.startswith(("--redirects", "--tee"))] == expected


def test_torchrun_understands_the_command() -> None:
    from torch.distributed.elastic.multiprocessing import Std
    from torch.distributed.run import parse_args

    for num_processes in (2, 10, 16):
        found = parse_args(torchrun_command(job(num_processes), "id")[3:])  # type: ignore[no-untyped-call]
        assert found.nproc_per_node == str(num_processes)
        assert found.training_script == "trainer"
        assert found.training_script_args == ["configs/runs/a b.yaml", "seed=2", "name=x;y"]
        assert Std.from_str(found.redirects)


def environment_of(given: dict[str, str], num_processes: int = 2, cores: int = 8) -> dict[str, str]:
    return child_environment(given, job=job(num_processes), cores=cores, launch_id="L", launcher_pid=7)


def test_environment() -> None:
    found = environment_of({"HOME": "/h", "PET_TEE": "3", "PYTHONPATH": f".{os.pathsep}/x{os.pathsep}"})
    assert found == {
        "HOME": "/h",
        "OMP_NUM_THREADS": "4",
        "PYTHONPATH": "/x",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "ZEROMT_GRACE_SECONDS": "1800",
        "ZEROMT_LAUNCHER_PID": "7",
        "ZEROMT_LAUNCH_ID": "L",
    }
    assert environment_of({"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert environment_of({}, num_processes=16)["OMP_NUM_THREADS"] == "1"
    assert "PYTHONPATH" not in environment_of({"PYTHONPATH": ""})


@pytest.mark.parametrize(
    ("requested", "micro_batches", "gpus", "cores", "expected"),
    [
        (None, 2, 0, 8, 2),
        (None, 8, 0, 2, 2),
        (None, 8, 4, 64, 4),
        (None, 2, 8, 64, 2),
        (4, 4, 0, 1, 4),
        (1, 8, 8, 8, 1),
    ],
)
def test_number_of_processes(requested: int | None, micro_batches: int, gpus: int, cores: int, expected: int) -> None:
    assert choose_processes(requested, micro_batches, gpus=gpus, cores=cores) == expected


@pytest.mark.parametrize(
    ("requested", "gpus", "nodes", "expected"),
    [
        (9, 0, 1, "--nproc: 9 is more than stream.micro_batches=8"),
        (3, 0, 3, "--nproc: 3 on each of 3 nodes is more than stream.micro_batches=8"),
        (3, 2, 1, "--nproc: 3 is more than the GPUs of this machine"),
    ],
)
def test_too_many_processes(requested: int, gpus: int, nodes: int, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        choose_processes(requested, 8, gpus=gpus, cores=64, nodes=nodes)
    assert expected in str(caught.value)


def test_unprepared_dataset_is_refused(tmp_path: Path) -> None:
    overrides = [f"stream.datasets=[{{path: {tmp_path}}}]"]
    with pytest.raises(UserError, match=r"^stream\.datasets: "):
        check_datasets(load_run("debug", overrides), "debug", overrides)
    (tmp_path / "index.json").touch()
    check_datasets(load_run("debug", overrides), "debug", overrides)


def test_missing_files_of_evaluation_sets_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "x.en"
    source.touch()
    (tmp_path / "index.json").touch()
    overrides = [
        f"stream.datasets=[{{path: {tmp_path}}}]",
        f"evaluation.sets=[{{name: a, prepared: test}}, {{name: b, source: {source}, references: [gone.fr]}}]",
    ]
    with pytest.raises(UserError, match=r"^evaluation\.sets\.1\.references: 'gone\.fr' is not there"):
        check_datasets(load_run("debug", overrides), "debug", overrides)


@pytest.mark.parametrize(
    ("state", "agent_code", "was_stopped", "expected"),
    [
        ("finished", 0, False, 0),
        ("finished", 1, False, 0),  # every rank is done; what broke on the way out changes nothing
        ("refused", 2, False, 2),
        ("stopped", 143, True, 75),
        ("stopped", 75, False, 75),
        ("failed", 1, False, 1),
        ("running", 1, False, 1),
        ("running", 2, False, 2),  # another rank refused
        ("running", 143, True, 1),  # nobody says that a save was complete
        ("running", 0, False, 0),  # every rank is done, and the disk too full to say so
        (None, 0, False, 0),
        (None, 1, False, 1),
        (None, 2, False, 2),
        (None, 138, True, 75),
        (None, -10, True, 75),
        (None, -9, False, 1),
    ],
)
def test_exit_code(state: str | None, agent_code: int, was_stopped: bool, expected: int) -> None:
    status = None if state is None else Status(state=state, error=None)
    assert outcome(status, agent_code, was_stopped=was_stopped) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"state": "stopped", "launch_id": "L", "error": None}), "stopped"),
        (json.dumps({"state": "stopped", "launch_id": "other"}), None),
        (json.dumps({"state": "stopped"}), None),
        ("[]", None),
        ("{", None),
        ("", None),
    ],
)
def test_status_of_this_launch_only(tmp_path: Path, text: str, expected: str | None) -> None:
    path = tmp_path / "status.json"
    assert read_status(path, "L") is None
    path.write_text(text)
    found = read_status(path, "L")
    assert (found and found.state) == expected


def test_restarts_are_counted_since_the_last_progress() -> None:
    restarts = Restarts(2, newest_step=100)
    assert [restarts.may_follow(100), restarts.may_follow(100), restarts.may_follow(100)] == [True, True, False]
    restarts = Restarts(2, newest_step=0)
    assert [restarts.may_follow(step) for step in (0, 0, 50, 50, 60, 60, 60)] == [True] * 6 + [False]
    assert (restarts.step, restarts.num_failures) == (60, 3)
    assert not Restarts(0, newest_step=0).may_follow(5)


def test_checkpoint_that_fell_back_is_no_progress() -> None:
    restarts = Restarts(1, newest_step=100)
    assert [restarts.may_follow(90), restarts.may_follow(100)] == [True, False]


def test_arguments_pass_torchrun_unchanged() -> None:
    from torch.distributed.elastic.agent.server.api import WorkerGroup  # noqa: F401 (loads what the next line needs)
    from torch.distributed.elastic.utils.api import macros

    given = ("name=$$a${local_rank}$(b)", "output=$local_rank")
    command = torchrun_command(dataclasses.replace(job(2), overrides=given), "id")
    assert macros.substitute(command[-2:], "7") == list(given)


def test_reset_stands_before_the_overrides() -> None:
    found = torchrun_command(job(2), "id", reset="data,optimizer")
    assert found[-5:] == ["configs/runs/a b.yaml", "--reset", "data,optimizer", "seed=2", "name=x;y"]


def test_every_attempt_names_the_parent() -> None:
    """The ranks know whether it counts; and its name passes torchrun unchanged."""
    found = torchrun_command(dataclasses.replace(job(2), parent="runs/$a@5"), "id")
    assert found[-5:] == ["configs/runs/a b.yaml", "--from", "runs/$$a@5", "seed=2", "name=x;y"]


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1), ("", None)]
)
def test_cores_of_a_container(
    tmp_path: Path, quota: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    (tmp_path / "cpu.max").write_text(quota)
    assert num_cores(tmp_path) == (expected or 64)
    assert num_cores(tmp_path / "none") == 64
