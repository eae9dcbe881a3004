"""The pure parts of `zeromt launch local`: command line, environment, number of processes."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from configs import UserError, load_run
from launcher.machine.cores import num_cores
from launcher.start import ranks
from launcher.start.datasets import check_datasets
from launcher.start.ranks import Job, Node, child_environment, choose_processes, torchrun_command
from trainer.runs.status import read_status


def make(*overrides: str, num_processes: int, node: Node | None = None, **more: Any) -> Job:
    """A job as `make_job` would make it, of a configuration that needs no dataset."""
    job = Job(
        run=load_run("debug", overrides),
        config="configs/runs/a b.yaml",
        overrides=("seed=2", "name=x;y"),
        num_processes=num_processes,
        idle="",
        numa_binding=None,
        fresh=False,
        reset=None,
        parent=None,
        node=node,
    )
    return dataclasses.replace(job, **more)


def command(job: Job, **more: Any) -> list[str]:
    return torchrun_command(job, "ID", Path("/private"), **more)


def test_golden_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torchrun that knows all options."""
    monkeypatch.setattr(ranks, "_is_torchrun_option", lambda _: True)
    assert command(make(num_processes=3)) == [
        sys.executable,
        "-m",
        "launcher.start.torchrun",
        "/private/ended.json",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=/private/rendezvous",
        "--rdzv-conf=store_type=file",
        "--local-addr=127.0.0.1",
        "--rdzv-id=ID",
        "--nproc-per-node=3",
        "--max-restarts=0",
        "--shutdown-timeout=3600",
        "--log-dir=runs/debug/logs",
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
    arguments = command(make(num_processes=num_processes))
    assert [option for option in arguments if option.startswith(("--redirects", "--tee"))] == expected


@pytest.mark.parametrize("node", [None, Node(rank=1, num_nodes=2, host="n1", port=5, interface="ib0")])
def test_torchrun_understands_the_command(node: Node | None) -> None:
    from torch.distributed.run import parse_args

    job = make(num_processes=16, node=node, numa_binding="node")
    parsed = parse_args(command(job)[4:])  # type: ignore[no-untyped-call]
    assert (parsed.nproc_per_node, parsed.numa_binding, parsed.training_script) == ("16", "node", "trainer")
    assert parsed.training_script_args == ["configs/runs/a b.yaml", "seed=2", "name=x;y"]
    if node is not None:
        assert (parsed.rdzv_backend, parsed.nnodes, parsed.node_rank) == ("static", "2", 1)
        assert (parsed.master_addr, parsed.master_port) == ("n1", 5)
        assert (parsed.log_dir, parsed.redirects, parsed.tee) == ("runs/debug/logs/node-1", "3", "0:3")


def environment_of(given: dict[str, str], *overrides: str, **more: Any) -> dict[str, str]:
    job = make(*overrides, **{"num_processes": 2} | more)
    return child_environment(given, job=job, launch_id="L", private=Path("/private"))


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "num_cores", lambda: 8)
    assert environment_of({"HOME": "/h", "PET_TEE": "3", "PYTHONPATH": "/x"}) == {
        "HOME": "/h",
        "OMP_NUM_THREADS": "4",
        "PYTHONPATH": "/x",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCH_FR_DUMP_TEMP_FILE": "/private/nccl-trace-rank-",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "ZEROMT_LAUNCH_ID": "L",
        "ZEROMT_PRIVATE": "/private",
    }
    for name in ("OMP_NUM_THREADS", "TORCH_FR_DUMP_TEMP_FILE"):
        assert environment_of({name: "3"})[name] == "3"
    assert environment_of({}, num_processes=16)["OMP_NUM_THREADS"] == "1"
    assert environment_of({}, "engine.device=cpu")["CUDA_VISIBLE_DEVICES"] == ""
    node = Node(rank=1, num_nodes=2, host="n1", port=5, interface="ib0")
    variables = environment_of({}, node=node)
    assert variables["GLOO_SOCKET_IFNAME"] == variables["NCCL_SOCKET_IFNAME"] == "ib0"


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
    inside = [*overrides, f"output={tmp_path}"]
    with pytest.raises(UserError, match=r"^output/name: "):
        check_datasets(load_run("debug", inside), "debug", inside)


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
    status = read_status(path, "L")
    assert (status and status.state) == expected


def test_arguments_pass_torchrun_unchanged() -> None:
    from torch.distributed.elastic.agent.server.api import WorkerGroup  # noqa: F401 (loads what the next line needs)
    from torch.distributed.elastic.utils.api import macros

    given = ("name=$$a${local_rank}$(b)", "output=$local_rank")
    arguments = command(make(num_processes=2, overrides=given, parent="runs/$a@5"), reset="data,optimizer")
    assert macros.substitute(arguments[-7:], "7") == [
        "configs/runs/a b.yaml",
        *("--reset", "data,optimizer"),
        *("--from", "runs/$a@5"),
        *given,
    ]


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
