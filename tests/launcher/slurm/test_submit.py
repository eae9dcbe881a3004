"""`zeromt launch slurm`: what is asked of sbatch, and what is refused before."""

import json
import re
import sys
from pathlib import Path

import pytest

from configs import UserError
from launcher.slurm.profile import Profile
from launcher.slurm.size import choose_lead
from tests.conftest import Call, Refused
from tests.launcher.slurm.scheduler import Scheduler

CPU = ("launch", "slurm", "debug", "--site", "cpu")


@pytest.fixture
def scheduler(workplace: Path) -> Scheduler:
    return Scheduler(workplace)


def test_a_training(call: Call, scheduler: Scheduler) -> None:
    done = call(*CPU, "--nodes", "2", "--nproc", "1", "--set", "sbatch.partition=p1", **scheduler.variables)
    assert (done.code, done.out) == (0, "1\n"), done.err
    log = scheduler.folder / "runs" / "debug" / "logs" / "debug-1.out"
    assert done.err.splitlines()[-1] == f"zeromt: job 1; its log is {log}; `zeromt stop runs/debug` ends it"
    assert scheduler.asked() == ["--test-only", "--parsable"]
    lines = scheduler.script(1).splitlines()
    for line in (
        *("#SBATCH --partition=p1", "#SBATCH --nodes=2", "#SBATCH --time=01:00:00", "#SBATCH --signal=B:USR1@300"),
        *("limits=(--max-restarts 3 --max-requeues 5 --link 1)", "node_options=(--nproc 1)", "overrides=()"),
        *(f"#SBATCH --output={log.with_name('debug-%j.out')}", f"python={sys.executable}", "run=runs/debug"),
    ):
        assert line in lines


def test_a_chain_after_a_job(call: Call, scheduler: Scheduler) -> None:
    """Its data are prepared by that job."""
    given = ["prepare.output=none", "--chain", "3", "--nproc", "1", "--after", "9", "--max-restarts", "0"]
    done = call(*CPU, *given, **scheduler.variables)
    assert done.out == "1\n2\n3\n", done.err
    follows = [f"--parsable --dependency=afterany:{job} --kill-on-invalid-dep=yes" for job in (1, 2)]
    assert scheduler.asked()[1:] == ["--parsable", *follows]
    for job in (1, 2, 3):
        script = scheduler.script(job)
        assert f"limits=(--max-restarts 0 --max-requeues 0 --link {job})\n" in script
        assert "#SBATCH --no-requeue\n" in script
        assert "#SBATCH --dependency=afterok:9\n" in script


def test_parts_and_their_merge(call: Call, scheduler: Scheduler) -> None:
    command = ["zeromt", "translate", "RUN", "-i", "x", "--beam", "6"]
    done = call("launch", "slurm", "--site", "cpu", "--array", "4", "--", *command, **scheduler.variables)
    assert done.out.split() == ["1", "2"], done.err
    assert done.err.endswith(f"its log is {scheduler.folder}/logs/translate-1_*.out; `scancel 1 2` ends it\n")
    assert scheduler.asked()[1:] == ["--parsable", "--parsable --dependency=afterok:1 --kill-on-invalid-dep=yes"]
    words = [re.findall(r"^words=\(.*zeromt (.*)\)$", scheduler.script(job), re.MULTILINE) for job in (1, 2)]
    assert words == [["translate --part slurm RUN -i x --beam 6"], ["translate --merge RUN -i x --beam 6"]]
    assert ["#SBATCH --array=1-4\n" in scheduler.script(job) for job in (1, 2)] == [True, False]


def test_secrets_are_sent_and_not_shown(call: Call, scheduler: Scheduler) -> None:
    """Values of the site's environment."""
    given = ["--nproc", "1", "--set", "environment.TOKEN=s3cr3t", "--set", "environment.NCCL_IB_HCA=x"]
    assert call(*CPU, *given, **scheduler.variables).code == 0
    assert "environment=(TOKEN=s3cr3t NCCL_IB_HCA=x)\n" in scheduler.script(1)
    shown = call(*CPU, *given, "--dry-run").out
    assert "environment=('TOKEN=***' NCCL_IB_HCA=x)\n" in shown


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is not asked of the configuration, which takes seconds: tests/trainer/engines/test_config.py holds that."""
    monkeypatch.setattr("launcher.slurm.submit.check_in_child", lambda *_: 0)


@pytest.mark.usefixtures("workplace", "unchecked")
def test_gpus_with_one_core(call: Call) -> None:
    """What SLURM gives where neither the job nor the site asks for more."""
    gpus = ["launch", "slurm", "debug", "--nproc", "1", "--gpus-per-node", "2", "--dry-run"]
    assert "warning: cpus_per_node: none with 2 GPUs on each node" in call(*gpus).err
    for more in ("cpus_per_node=8", "sbatch.exclusive=true"):
        assert "warning" not in call(*gpus, "--set", more).err


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("given", "amount", "then"),
    [
        (
            ["debug", "--nproc", "2"],
            "nodes: 1; ranks on each: 2; hours: 1; jobs: 1; at most 1 node hours",
            "the job goes back in the queue, at most 5 times without a new checkpoint",
        ),
        (
            ["debug", "--nodes", "1-2", "--gpus-per-node", "1", "--set", "max_requeues=0"],
            "nodes: 1-2; ranks on each: 1; hours: 1; jobs: 1; at most 2 GPU hours",
            "ends with 75; the same launch resumes it (--chain N sends N jobs)",
        ),
        (
            ["debug", "--chain", "3", "--time", "1-0"],
            "nodes: 1; ranks on each: one for each core; hours: 24; jobs: 3; at most 72 node hours",
            "the next job resumes it",
        ),
        (["--array", "3", "--", "zeromt", "score", "x"], "tasks: 4; hours: 1; at most 4 node hours", ""),
    ],
)
def test_a_dry_run_says_what_is_asked_for(
    call: Call, workplace: Path, given: list[str], amount: str, then: str
) -> None:
    """On the person's stream: the scripts alone are on standard output."""
    done = call("launch", "slurm", "--site", "cpu", "--dry-run", *given)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "warning" not in line]
    end = [f"zeromt: 300 s before the time limit, or at a preemption, the run saves; {then}"] if then else []
    assert lines == [f"zeromt: {amount}", *end]
    assert done.out.startswith("#!/bin/bash\n")
    assert not (workplace / "runs").exists()


def test_what_the_cluster_refuses(refused: Refused, scheduler: Scheduler) -> None:
    (scheduler.queue / "refuses").touch()
    said = refused(*CPU, "--nproc", "1", "--fresh", **scheduler.variables)
    assert said.startswith("sbatch: sbatch: error: no such partition; ask for what this cluster takes")
    assert not (scheduler.folder / "runs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["debug", "--nodes", "x"], "--nodes: 'x'"),
        (
            ["debug", "--nodes", "3", "--nproc", "1"],
            "--nodes: 3 with 1 processes each is more than stream.micro_batches",
        ),
        (
            ["debug", "--gpus-per-node", "1", "--nproc", "2"],
            "--nproc: 2 is more than the GPUs of a node; allowed is 1 to 1, or give --gpus-per-node",
        ),
        (
            ["debug", "--time", "4"],
            "--time: 4 is less than signal_lead=300 and a save of 0 s; allowed is 5 minutes or more",
        ),
        (["debug", "--time", "x"], "time: 'x'"),
        (["debug", "--time", "0"], "time: '0'; allowed is more than nothing"),
        (["debug", "--job-name", "a b"], "--job-name: 'a b'"),
        (["debug", "--site", "nowhere"], "--site: no such file: 'nowhere'"),
        (["debug", "--set", "sbatsh.partition=x"], "sbatsh: unknown key"),
        (["debug", "--set", "sbatch.time=3"], "sbatch.time: zeromt gives this option itself"),
        (["debug", "--set", "sbatch.-p=x"], "sbatch: '-p'; allowed are long names of options without --"),
        (["debug", "--set", 'sbatch.comment="a\\nb"'], "comment: 'a\\nb'; allowed is text without line breaks"),
        (["debug", "--set", "container_image=a.sif"], "container_image: 'a.sif' with container=none"),
        (["debug", "seed=x"], "seed: 'x'"),
        (["debug", "--nproc", "1", "prepare.output=x"], "prepare.output: 'x' holds no index.json"),
        (["debug", "--nproc", "1", "output=torch.py"], "output: '/"),
        (["debug", "--nproc", "1"], "sbatch: no such command"),
        ([], "CONFIG: none given; give one, or a command behind `--`"),
        (["--array", "2"], "--array: no command; give one behind `--`"),
        (["--array", "2", "--", "ls"], "--array: 'ls' behind `--` has no parts; allowed is zeromt prepare"),
        (["seed=1", "--", "ls"], "CONFIG, settings: not with a command behind `--`"),
        (
            ["--chain", "2", "--", "ls"],
            "--chain: not with a command behind `--`, which is not a training run; leave it out",
        ),
    ],
)
def test_bad_input(refused: Refused, workplace: Path, given: list[str], message: str) -> None:
    assert refused("launch", "slurm", "--site", "cpu", *given, PATH="/nowhere").startswith(message)
    assert not (workplace / "runs").exists()


def test_the_lead_is_longer_than_the_slowest_save(tmp_path: Path) -> None:
    metrics, hour = tmp_path / "metrics.jsonl", Profile(time="60")

    def saved(*seconds: float) -> Path:
        lines = [{"event": "checkpoint", "seconds": s} for s in seconds] + [{"event": "resume", "seconds": 999}]
        metrics.write_text("\n".join([*map(json.dumps, lines), '{"event": "checkpoint", "sec', "[]", ""]))
        return metrics

    assert choose_lead(hour, metrics) == 300
    assert choose_lead(hour, saved(2.5, 200.5, 1)) == 602
    assert choose_lead(Profile(time="60", signal_lead=120), saved(100)) == 120
    with pytest.raises(UserError, match=r"^signal_lead: 100 is not more than the run's slowest save took, 100 s; "):
        choose_lead(Profile(time="60", signal_lead=100), saved(100))
    with pytest.raises(UserError, match=r"^--time: 10 is less than signal_lead=540 .* allowed is 12 minutes or more"):
        choose_lead(Profile(time="10"), saved(180))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("1:00:00", 3600), ("1-2", 93_600), ("1-2:3", 93_780), ("1-02:03:04", 93_784)],
)
def test_times(text: str, seconds: int) -> None:
    assert Profile(time=text).seconds == seconds
