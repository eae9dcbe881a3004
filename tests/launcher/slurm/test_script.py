"""Batch scripts: as one was reviewed (golden), free of what shellcheck knows, and never run by what they hold."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import UserError
from launcher.slurm.profile import Profile
from launcher.slurm.script import Job, most_nodes, render_command, render_training
from tests.waiting import PATIENCE

HARM = ("; touch canary #", "$(touch canary)", "`touch canary`", "' ; touch canary ; '", '" ; touch canary ; "')
GOLDEN = Path(__file__).parent / "golden" / "full.sh"
PYTHON = "/venv/bin/python"
JOB = Job(folder="/home/me/my work", name="mt", logs="/home/me/50%/logs")
TRAINING: dict[str, Any] = {
    "nodes": "2",
    "lead": 300,
    "limits": ["--max-restarts", "3", "--max-requeues", "5", "--link", "1"],
    "run": "runs/my run",
    "config": "configs/runs/my run.yaml",
    "overrides": ("seed=2", "name=a;b", "output=it's"),
    "node_options": ("--nproc", "2"),
}
BARE = Profile(gpus_per_node=0, time="60", python=PYTHON)
FULL = Profile(
    sbatch={
        "partition": "gpu",
        "comment": 'it\'s "x" # \\ $(b)',
        "exclusive": True,
        "nice": 5,
        "qos": None,
        "wait": False,
    },
    time="60",
    gpus_per_node=8,
    cpus_per_node=96,
    modules=["cuda/12.4", "a b"],
    source=["/opt/my env/activate"],
    environment={"NCCL_IB_HCA": "mlx5", "X": "a $(b) 'c'"},
    python=PYTHON,
)
APPTAINER = dataclasses.replace(
    BARE, container="apptainer", container_image="/images/z t.sif", container_mounts=["/data:/data"], gpus_per_node=4
)
PYXIS = dataclasses.replace(
    APPTAINER, container="pyxis", container_image="docker://z", sbatch={"gres": "gpu:a100:4"}, max_requeues=0
)


def training(site: Profile = BARE, job: Job = JOB, **changes: Any) -> str:
    return render_training(site, job, **{**TRAINING, **changes})


def command(site: Profile = BARE, words: Sequence[str] = ("zeromt", "export", "a b"), parts: int | None = None) -> str:
    return render_command(site, JOB, list(words), parts=parts)


PART = ("zeromt", "score", "--part", "slurm", "data")
SCRIPTS = {
    "bare": training(),
    "full": training(FULL, nodes="2-4"),
    "apptainer": training(APPTAINER, dataclasses.replace(JOB, after=17)),
    "pyxis": training(PYXIS),
    "command": command(APPTAINER),
    "part": command(PYXIS, PART, parts=4),
    "merge": command(PYXIS, ("zeromt", "score", "--merge", "data")),
    "prepare": command(APPTAINER, ("zeromt", "prepare", "my.yaml")),
}


def test_golden() -> None:
    if "UPDATE_GOLDEN" in os.environ:
        GOLDEN.write_text(SCRIPTS["full"])
    assert SCRIPTS["full"] == GOLDEN.read_text(), "look at the change; UPDATE_GOLDEN=1 accepts it"


@pytest.mark.parametrize(
    ("name", "other", "new", "gone"),
    [
        ("apptainer", "bare",
         ["#SBATCH --dependency=afterok:17", "#SBATCH --kill-on-invalid-dep=yes", "#SBATCH --gpus-per-node=4",
          "container=(apptainer exec --nv --bind /data:/data '/images/z t.sif')"], ["container=()"]),
        ("pyxis", "bare",
         ["#SBATCH --no-requeue", "#SBATCH --gres=gpu:a100:4",
          "step_options=(--container-image=docker://z --container-mounts=/data:/data)",
          "once=(srun --export=ALL --nodes=1 --ntasks=1 --relative=0 --container-image=docker://z "
          "--container-mounts=/data:/data)"],
         ["#SBATCH --requeue", "step_options=()", "once=()"]),
        ("part", "merge",
         ["#SBATCH --output=/home/me/50%%/logs/mt-%A_%a.out", "#SBATCH --array=1-4", "#SBATCH --gres=gpu:a100:4",
          "words=(/venv/bin/python -P -m zeromt score --part slurm data)"],
         ["#SBATCH --output=/home/me/50%%/logs/mt-%j.out", "words=(/venv/bin/python -P -m zeromt score --merge data)"]),
        ("command", "prepare",
         ["#SBATCH --gpus-per-node=4", "words=(/venv/bin/python -P -m zeromt export 'a b')"],
         ["words=(/venv/bin/python -P -m zeromt prepare my.yaml)"]),
    ],
)  # fmt: skip
def test_differs_by_these_lines_alone(name: str, other: str, new: list[str], gone: list[str]) -> None:
    lines, others = (SCRIPTS[one].splitlines() for one in (name, other))
    assert [line for line in lines if line not in others] == new
    assert [line for line in others if line not in lines] == gone


def test_shellcheck(tmp_path: Path) -> None:
    beside = str(Path(sys.executable).parent)
    shellcheck = shutil.which("shellcheck", path=f"{beside}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed; the extra `dev` brings it")
    for name, script in SCRIPTS.items():
        (tmp_path / f"{name}.sh").write_text(script)
    done = subprocess.run(  # SC2016 warns of what quoting is for: '$(x)' stays as it is
        [shellcheck, "--exclude=SC2016,SC2034", *tmp_path.glob("*.sh")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# What a script finds on PATH in place of SLURM's commands: they note what they got. Decisions are lines of ANSWERS.
STUB = """#!/bin/bash
name=$(basename "$0")
printf '%s\\0' "$name" "$@" >>"$LOG"
printf '\\n' >>"$LOG"
case $name in
scontrol) [[ $1 == requeue ]] || printf 'n1\\nn2\\n' ;;
python | apptainer) echo "a banner"; sed -n "$(grep -cE '^(python|apptainer)' "$LOG")p" <<<"$ANSWERS" ;;
srun) exit "$CODE" ;;
esac
"""


def run_script(
    script: str, folder: Path, *, code: int = 0, answers: Sequence[str] = ("start 0", "end 0"), task: str = ""
) -> tuple[int, list[list[str]], str]:
    """Execute a script with stubs on PATH: its exit code, what each of SLURM's commands got, and the noted code."""
    binaries, logs, log = folder / "bin", folder / "logs", folder / "log"
    for one in (binaries, logs):
        one.mkdir(exist_ok=True)
    for name in ("srun", "scontrol", "python", "apptainer"):
        (binaries / name).write_text(STUB)
        (binaries / name).chmod(0o755)
    log.unlink(missing_ok=True)
    environment = {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "LOG": str(log),
        "CODE": str(code),
        "ANSWERS": "\n".join(answers),
        "SLURM_JOB_ID": "20017",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "2",
        **({"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_JOB_ID": "20016"} if task else {}),
    }
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    calls = [line.split("\0") for line in log.read_text().split("\0\n")[:-1]] if log.exists() else []
    return done.returncode, calls, "".join(path.read_text() for path in logs.glob("mt-*.code"))


def at(folder: Path, site: Profile = BARE) -> tuple[Profile, Job]:
    """A site and a job whose files are in a folder."""
    site = dataclasses.replace(site, python=str(folder / "bin" / "python"), source=[], modules=[])
    return site, dataclasses.replace(JOB, logs=str(folder / "logs"))


def test_what_the_nodes_and_the_decision_are_told(tmp_path: Path) -> None:
    """At a failure all starts again, with another id and another port."""
    script = training(*at(tmp_path))
    code, calls, noted = run_script(script, tmp_path, code=1, answers=("start 0", "start 1", "end 75"))
    assert (code, noted) == (75, "75 20017\n")
    python = ["python", "-P", "-m", "launcher.slurm.decide", "runs/my run"]
    limits = TRAINING["limits"]
    assert [call for call in calls if call[0] == "python"] == [
        [*python, "none", "--code", "0", "--signal", "none", *limits],
        [*python, "20017-0-1", "--code", "1", "--signal", "none", *limits],
        [*python, "20017-0-2", "--code", "1", "--signal", "none", *limits],
    ]
    steps = [call for call in calls if call[0] == "srun"]
    assert [step[1:8] for step in steps] == [
        [
            *("--export=ALL", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"),
            *("--cpus-per-task=2", str(tmp_path / "bin" / "python")),
        ]
    ] * 2
    assert [step[8:] for step in steps] == [
        [
            *("-P", "-m", "zeromt", "launch", "node", "configs/runs/my run.yaml", "--nnodes", "2"),
            *("--job-id", f"20017-0-{number}", "--rendezvous", f"n1:{port}"),
            *("--nproc", "2", "--", "seed=2", "name=a;b", "output=it's"),
        ]
        for number, port in ((1, 10273), (2, 10274))
    ]


@pytest.mark.parametrize(
    ("answer", "code", "requeues", "noted"),
    [
        ("end 2", 2, False, "2 20017\n"),
        ("requeue 75", 75, True, ""),  # whoever waits goes on waiting
        ("exit 1", 1, False, ""),
        ("", 1, False, "1 20017\n"),
    ],
)
def test_what_is_decided_before_the_first_start(
    tmp_path: Path, answer: str, code: int, requeues: bool, noted: str
) -> None:
    exit_code, calls, left = run_script(training(*at(tmp_path)), tmp_path, answers=(answer,))
    assert (exit_code, left) == (code, noted)
    assert (["scontrol", "requeue", "20017"] in calls, "srun" in [call[0] for call in calls]) == (requeues, False)


@pytest.mark.parametrize(
    ("task", "code", "noted"),
    [("", 0, "0 20017\n"), ("", 3, "3 20017\n"), ("3", 0, ""), ("3", 2, "2 20016_3\n")],
)
def test_a_command_notes_its_exit_code(tmp_path: Path, task: str, code: int, noted: str) -> None:
    """Of an array the merge does, and a part that fails. One that comes again when it has ended does nothing."""
    site, job = at(tmp_path)
    script = render_command(site, job, ["cat", "a b"])
    exit_code, calls, left = run_script(script, tmp_path, code=code, task=task)
    assert (exit_code, left) == (code, noted)
    assert calls == [["srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "cat", "a b"]]
    if not task:
        assert run_script(script, tmp_path, code=code)[1] == []


LINES = ("\n", "\n#SBATCH --wrap='touch canary'\n", "\r", "\x00", "#SBATCH --wrap=x")
SIGNS = (" ", "&& touch canary", "| touch canary", "\\", "$HOME", "*", "~", "${x:-$(touch canary)}", "!!", "{a,b}")
EVIL = st.lists(st.sampled_from((*HARM, *LINES, *SIGNS, "a", "é", "--", "-x", "%j", "=")), min_size=1, max_size=4).map(
    "".join
)


def made(where: str, site: Profile, job: Job, evil: str) -> str:
    """A script in which something is at a place."""
    if where == "word":
        return render_command(site, job, ["cat", evil])
    changes = {where: [evil] if where == "overrides" else evil} if where in TRAINING else {}
    return training(site, job, **changes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(evil=EVIL, where=st.sampled_from(["overrides", "config", "run", "word", "environment", "image", "sbatch"]))
def test_values_arrive_verbatim_or_are_refused(tmp_path: Path, evil: str, where: str) -> None:
    site, job = at(tmp_path, dataclasses.replace(BARE, container="apptainer", container_image="image"))
    own: dict[str, Any] = {"environment": {"EVIL": evil}} if where == "environment" else {"sbatch": {"comment": evil}}
    if where in ("environment", "sbatch", "image"):
        site = dataclasses.replace(site, **({"container_image": evil} if where == "image" else own))
    if re.search(r"[\x00-\x1f]", evil):
        with pytest.raises(UserError, match=r"allowed is text without line breaks and control characters$") as caught:
            made(where, site, job, evil)
        assert len(str(caught.value).splitlines()) == 1
        return
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    script = made(where, site, job, evil)
    if where != "sbatch":
        assert [line for line in script.splitlines() if line.startswith("#SBATCH --w")] == []
    _, calls, _ = run_script(script, tmp_path)
    assert not (tmp_path / "canary").exists()
    if where not in ("environment", "sbatch"):
        assert any(evil in call for call in calls)


@pytest.mark.parametrize("text", ["0", "3-2", "2;x", "", "-2"])
def test_numbers_of_nodes(text: str) -> None:
    assert (most_nodes("2-16"), most_nodes("3")) == (16, 3)
    with pytest.raises(UserError, match=r"^--nodes: "):
        most_nodes(text)
