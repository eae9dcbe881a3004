"""`zeromt launch slurm`: what is asked of sbatch, and what is refused before."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from configs import UserError
from launcher.slurm.profile import Profile, format_time, parse_time
from launcher.slurm.queue import choose_lead, submission_environment
from launcher.slurm.submit import slowest_save
from tests.conftest import Call, Refused

# Writes its arguments and its script down, and answers as sbatch does.
SBATCH = """#!/bin/bash
printf '%s\\n' "$*" >>"$LOG"
cat >>"$LOG.scripts"
if [[ $1 == --test-only ]]; then echo "sbatch: Job 1 to start at once" >&2; exit "${REFUSE:-0}"; fi
echo $(($(wc -l <"$LOG") + 100))
"""


@pytest.fixture
def sbatch(workplace: Path) -> dict[str, str]:
    """The environment with an sbatch that notes what it gets in `log`."""
    binaries = workplace / "bin"
    binaries.mkdir()
    (binaries / "sbatch").write_text(SBATCH)
    (binaries / "sbatch").chmod(0o755)
    return {"PATH": f"{binaries}:{os.environ['PATH']}", "LOG": str(workplace / "log")}


def asked(workplace: Path) -> list[str]:
    return (workplace / "log").read_text().splitlines()


CPU = ("launch", "slurm", "debug", "--site", "cpu")


def test_submission(call: Call, sbatch: dict[str, str], workplace: Path) -> None:
    done = call(*CPU, "--nodes", "2", "--nproc", "1", "--partition", "p1", **sbatch)
    assert done.code == 0, done.err
    assert asked(workplace) == ["--test-only", "--parsable"]
    assert done.out == "102\n"
    assert "squeue -j 102" in done.err
    assert "zeromt stop runs/debug" in done.err
    script = (workplace / "runs" / "debug" / "logs" / "slurm-102.sh").read_text()
    assert (workplace / "log.scripts").read_text() == script * 2
    assert "#SBATCH --partition=p1\n" in script


def test_secrets_are_submitted_and_not_kept(call: Call, sbatch: dict[str, str], workplace: Path) -> None:
    """Values of the site's environment, and passwords in URLs of settings."""
    site = ["--set", "environment.TOKEN=s3cr3t", "--set", "environment.NCCL_IB_HCA=mlx5_0"]
    given = ["--nproc", "1", *site, "prepare.root=https://me:pa55@host/x"]
    assert call(*CPU, *given, **sbatch).code == 0
    script = (workplace / "log.scripts").read_text()
    assert "s3cr3t" in script
    assert "me:pa55@host" in script
    shown = call(*CPU, *given, "--dry-run").out + call("status", "runs/debug").out
    logs = (workplace / "runs" / "debug" / "logs").iterdir()
    kept = {path.name: path.read_text() for path in logs if path.is_file()}
    assert set(kept) == {"jobs.json", "slurm-102.sh"}
    assert "environment=('TOKEN=***' NCCL_IB_HCA=mlx5_0)\n" in kept["slurm-102.sh"]
    for text in (shown, *kept.values()):
        assert "s3cr3t" not in text
        assert "pa55" not in text


def test_gpus_with_one_core(call: Call, sbatch: dict[str, str]) -> None:
    """What SLURM gives where neither the job nor the site asks for more."""
    gpus = ["launch", "slurm", "debug", "--nproc", "1", "--set", "gpus_per_node=2"]
    said = "zeromt: warning: cpus_per_node: none with 2 GPUs on each node, and SLURM then gives one core"
    assert call(*gpus, **sbatch).err.startswith(said)
    for given in (["--set", "cpus_per_node=16"], ["--set", "exclusive=true"]):
        done = call(*gpus, *given, "--dry-run", **sbatch)
        assert done.code == 0, done.err
        assert "warning" not in done.err
    tasks = call(*gpus[:2], *gpus[-2:], "--array", "2", "--dry-run", "--", "prepare", "debug", **sbatch)
    assert (tasks.code, "warning" in tasks.err) == (0, False)
    assert "zeromt: 2 tasks and their merge, each on a node for at most 24 hours: 72 node hours\n" in tasks.err
    assert "node hours" not in tasks.out


@pytest.mark.parametrize(
    ("given", "amount", "then"),
    [
        (
            ["--nodes", "1", "--nproc", "2", "--time", "12:00:00"],
            "zeromt: 2 ranks on 1 node for at most 12 hours: 12 node hours",
            "the job requeues itself and goes on from it, at most 5 times without a new checkpoint",
        ),
        (
            ["--nodes", "1-2", "--set", "gpus_per_node=1", "--set", "requeue=false"],
            "zeromt: 2 ranks on at most 2 nodes for at most 1 hour: 2 GPU hours",
            "the same launch again goes on from it (--chain N submits N jobs at once)",
        ),
        (
            ["--nproc", "1", "--chain", "3"],
            "zeromt: 3 jobs, one after the other, each of 1 rank on 1 node for at most 1 hour: 3 node hours",
            "the next of the 3 jobs goes on from it",
        ),
    ],
    ids=["requeue", "no requeue", "chain"],
)
def test_a_dry_run_ends_with_what_it_asks_for_and_what_ends_it(
    call: Call, given: list[str], amount: str, then: str
) -> None:
    """On the person's stream: the script alone is on standard output."""
    done = call(*CPU, *given, "--dry-run")
    assert done.code == 0, done.err
    *_, asked_for, at_the_limit = done.err.splitlines()
    assert asked_for == amount
    assert "300 s before the time limit, or at a preemption, SLURM sends SIGUSR1: the run saves" in at_the_limit
    assert at_the_limit.endswith(then)
    assert done.out.startswith("#!/bin/bash\n")
    assert "hour:" not in done.out


def test_chain(call: Call, sbatch: dict[str, str], workplace: Path) -> None:
    done = call(*CPU, "--chain", "3", "--nproc", "1", **sbatch)
    assert done.out.split() == ["102", "103", "104"]
    assert asked(workplace)[1:] == [
        "--parsable",
        "--parsable --dependency=afterany:102",
        "--parsable --dependency=afterany:103",
    ]
    scripts = (workplace / "log.scripts").read_text()
    assert re.findall(r"^link=(\d)$", scripts, re.MULTILINE) == ["1", "1", "2", "3"]
    assert "#SBATCH --requeue" not in scripts


def test_array(call: Call, refused: Refused, sbatch: dict[str, str], workplace: Path) -> None:
    array = ("launch", "slurm", "--site", "cpu", "--array", "4", "--", "prepare", "debug")
    assert refused(*array, "seed=x", **sbatch).startswith("seed: 'x'")
    assert not (workplace / "log").exists()
    done = call(*array, **sbatch)
    assert done.out.split() == ["102", "103"]
    assert json.loads((workplace / "runs" / "debug" / "logs" / "jobs.json").read_text())["is_array"] is True
    assert f"tail -F {workplace}/runs/debug/logs/prepare-*.out" in done.err
    outputs = {f"prepare-{job}.out": f"of {job}\n" for job in ("102_1", "102_2")}
    for name, text in outputs.items():
        (workplace / "runs" / "debug" / "logs" / name).write_text(text)
    assert re.findall("of .*", call("log", "runs/debug", **sbatch).out) == ["of 102_1", "of 102_2"]
    assert asked(workplace)[1:] == ["--parsable", "--parsable --dependency=afterok:102 --kill-on-invalid-dep=yes"]
    assert (workplace / "log.scripts").read_text().count("#SBATCH --array=1-4\n") == 2


def test_refusal_of_the_cluster(call: Call, sbatch: dict[str, str], workplace: Path) -> None:
    done = call(*CPU, "--nproc", "1", "--fresh", REFUSE="1", **sbatch)
    assert done.code == 2
    assert done.err.startswith("zeromt: error: sbatch: sbatch: Job 1 to start at once; ask for what this")
    assert asked(workplace) == ["--test-only"]
    assert not (workplace / "runs").exists()


HPZ_2 = "engine.zero_optimization.zero_hpz_partition_size=2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "x"], "--nodes: 'x'"),
        (["--nodes", "3", "--nproc", "1"], "--nodes: 3 with 1 processes each is more than stream.micro_batches=2"),
        (
            ["--nodes", "2", "--nproc", "3", "stream.micro_batches=6", "engine.zero_stage=3", HPZ_2],
            "engine.zero_optimization.zero_hpz_partition_size: 2 with 6 ranks, 3 on each machine",
        ),
        (["--time", "4"], "--time: 0-00:04:00 is less than signal_lead=300 and a save of 0 s"),
        (["--time", "x"], "time: 'x'"),
        (["--partition", "a;b"], "partition: 'a;b'"),
        (["--job-name", "a b"], "--job-name: 'a b'"),
        (["--site", "nowhere"], "--site: no such file: 'nowhere'"),
        (["--set", "partitoin=x"], "partitoin: unknown key"),
        (["--set", "x"], "--set: 'x'"),
        (["--set", "mail_user=me@x.org"], "mail_user: 'me@x.org' without mail_type, and SLURM would never write"),
        (["--set", "mail_type=[SOON]"], "mail_type.0: 'SOON'"),
        (["--set", "nodelist=n1;n2"], "nodelist: 'n1;n2'"),
        (["--container-image", "a.sif"], "container_image: 'a.sif' with container=none"),
        (["--chain", "2", "--array", "2", "--", "prepare", "c"], "argument --array: not allowed with argument --chain"),
        (["seed=x"], "seed: 'x'"),
        (["--nproc", "1", "prepare.output=x"], "prepare.output: 'x' holds no index.json"),
        (["--nproc", "1"], "sbatch: no such command"),
    ],
)
def test_bad_input(refused: Refused, workplace: Path, arguments: list[str], message: str) -> None:
    assert refused(*CPU, *arguments, PATH="/nowhere").startswith(message)
    assert not (workplace / "runs").exists()


def test_lead_is_longer_than_the_slowest_save(tmp_path: Path) -> None:
    site = Profile(time="60")
    assert choose_lead(site, 0.0) == 300
    assert choose_lead(site, 200.5) == 602
    assert choose_lead(Profile(time="60", signal_lead=120), 100.0) == 120
    with pytest.raises(UserError, match=r"^signal_lead: 90 is less than the run's slowest save took, 100 s"):
        choose_lead(Profile(time="60", signal_lead=90), 100.0)
    with pytest.raises(UserError, match=r"^--time: 0-00:10:00 is less than signal_lead=540 and a save of 180 s"):
        choose_lead(Profile(time="10"), 180.0)
    metrics = tmp_path / "metrics.jsonl"
    assert slowest_save(metrics) == 0
    lines = [{"event": "checkpoint", "seconds": s} for s in (2.5, 7.25, 1)] + [{"event": "resume", "seconds": 99}]
    metrics.write_text("\n".join([*map(json.dumps, lines), '{"event": "checkpoint", "sec', "[]", '"checkpoint"', ""]))
    assert slowest_save(metrics) == 7.25


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("1:00:00", 3600), ("1-2", 93_600), ("1-2:3", 93_780), ("1-02:03:04", 93_784)],
)
def test_times(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds
    assert parse_time(format_time(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "0", "x", "1-", "-1", "1:2:3:4", "1 0", "1\n", "٣", "UNLIMITED"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        parse_time(text)


def test_sbatch_does_not_inherit_an_allocation() -> None:
    given = {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "4", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "HOME": "/h"}
    assert submission_environment(given) == {"SLURM_CONF": "/c", "SBATCH_ACCOUNT": "a", "HOME": "/h"}


def test_program_is_python_of_the_submission(call: Call, workplace: Path) -> None:
    assert f"\npython={sys.executable}\n" in call(*CPU, "--dry-run").out
