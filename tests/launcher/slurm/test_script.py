"""Batch scripts: as they were reviewed (golden), free of what shellcheck knows, and never run by what they hold."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import UserError
from launcher.slurm.jobs import Array, Single, Training
from launcher.slurm.profile import Profile, load_profile
from launcher.slurm.script import check_nodes, most_nodes, render_array, render_command, render_training
from tests.waiting import PATIENCE

HARM = ("; touch canary #", "$(touch canary)", "`touch canary`", "' ; touch canary ; '", '" ; touch canary ; "')
GOLDEN = Path(__file__).parent / "golden"
PYTHON = "/venv/bin/python"

CONFIG, OVERRIDES = "configs/runs/my run.yaml", ("seed=2", "name=a;b", "output=it's")
COMMON: dict[str, Any] = {"folder": "/home/me/my work", "name": "mt"}
TRAINING = Training(**COMMON, run="runs/my run", config=CONFIG, overrides=OVERRIDES, nodes="2", nproc=2)
BARE = Profile(gpus_per_node=0, time="60", python=PYTHON)
FULL = Profile(
    time="60",
    partition="gpu",
    account="mt-2026",
    qos="normal",
    constraint="a100|h100",
    reservation="r1",
    nodelist="n[1-4],gpu-07",
    exclude="n9",
    licenses="scratch:2,matlab",
    mail_user="me@example.org",
    mail_type=["FAIL", "TIME_LIMIT_90"],
    gpus_per_node=8,
    gpu_type="h100",
    cpus_per_node=96,
    memory="480G",
    exclusive=True,
    modules=["cuda/12.4", "a b"],
    source=["/opt/my env/activate"],
    environment={"NCCL_IB_HCA": "mlx5", "X": "a $(b) 'c'"},
    python=PYTHON,
    interface="ib0",
)
APPTAINER = dataclasses.replace(
    BARE, container="apptainer", container_image="/images/z t.sif", container_mounts=["/data:/data"], gpus_per_node=4
)
PYXIS = dataclasses.replace(
    APPTAINER, container="pyxis", container_image="docker://z", gpu_request="gres", gpu_type="a100"
)


def refusal(make: Callable[[], str]) -> tuple[str, str]:
    """What was made, or the message with which it was refused."""
    try:
        return make(), ""
    except UserError as error:
        return "", str(error)


def training(site: Profile, output: str = "/home/me/my work/slurm-%j.out", **changes: Any) -> str:
    return render_training(site, dataclasses.replace(TRAINING, **changes), output=output, lead=300)


def array(site: Profile = BARE, **changes: Any) -> str:
    job = Array(**COMMON, words=("prepare", CONFIG, "--", *OVERRIDES), parts=4)
    return render_array(site, dataclasses.replace(job, **changes), output="/home/me/prepare-%A_%a.out")


def command(site: Profile = BARE, **changes: Any) -> str:
    job = Single(**COMMON, words=("zeromt", "export", "a b", "-o", "c"))
    return render_command(site, dataclasses.replace(job, **changes), output="/home/me/step.log")


SCRIPTS = {
    "bare": lambda: training(BARE),
    "full": lambda: training(FULL, nodes="2-4"),
    "apptainer": lambda: training(APPTAINER, after=17),
    "pyxis": lambda: training(PYXIS),
    "chain": lambda: training(BARE, link=2, num_links=3),
    "array": lambda: array(),
    "merge": lambda: array(is_merge=True, after=3),
    "command": lambda: command(APPTAINER, stdout="it's out"),
}


@pytest.mark.parametrize(
    ("words", "is_merge", "expected"),
    [
        ("translate run", False, True),
        ("score data", False, True),
        ("translate run", True, False),
        ("prepare x", False, False),
    ],
)
def test_parts_that_compute_get_gpus(words: str, is_merge: bool, expected: bool) -> None:
    script = array(APPTAINER, words=tuple(words.split()), is_merge=is_merge)
    assert ("#SBATCH --gpus-per-node=4\n" in script) == expected


@pytest.mark.parametrize("name", ["full", "array", "command"])
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(SCRIPTS[name]())
    assert SCRIPTS[name]() == path.read_text(), "look at the change; UPDATE_GOLDEN=1 accepts it"


NEW = {
    "bare": ["#SBATCH --nodes=2", "modules=()", "sources=()", "environment=()",
             "node_options=(--nproc 2 --max-restarts 3 --join-timeout 300 --node-timeout 15)"],
    "apptainer": ["#SBATCH --dependency=afterok:17", "#SBATCH --kill-on-invalid-dep=yes", "#SBATCH --gpus-per-node=4",
                  "container=(apptainer exec --nv --bind /data:/data '/images/z t.sif')"],
    "pyxis": ["#SBATCH --gres=gpu:a100:4",
              "srun_options=(--container-image=docker://z --container-mounts=/data:/data)"],
    "chain": ["#SBATCH --no-requeue", "link=2", "max_requeues=0"],
    "merge": ["#SBATCH --dependency=afterok:3", "#SBATCH --kill-on-invalid-dep=yes"],
}  # fmt: skip
"""By script: lines that another lacks, which is named in `OTHER` or the bare one."""
OTHER = {"bare": "full", "merge": "array"}
GONE = {
    "bare": [
        *("partition", "account", "qos", "constraint", "reservation", "exclude", "licenses", "mail-user", "mail-type"),
        *("cpus-per-task", "mem", "exclusive", "nodes", "nodelist", "gpus-per-node"),
        *("modules", "sources", "environment", "node_options"),
    ],
    "apptainer": ["container"],
    "pyxis": ["srun_options"],
    "chain": ["requeue", "link", "max_requeues"],
    "merge": ["array"],
}
"""What the lines set that are not in it any more."""


@pytest.mark.parametrize("name", NEW)
def test_differs_by_these_lines_alone(name: str) -> None:
    script, other = (SCRIPTS[n]().splitlines() for n in (name, OTHER.get(name, "bare")))
    assert [line for line in script if line not in other] == NEW[name]
    gone = [line.removeprefix("#SBATCH --").partition("=")[0] for line in other if line not in script]
    assert gone == GONE[name]
    assert len(script) == len(other) + len(NEW[name]) - len(GONE[name]), "none stands there twice"


def test_shellcheck(tmp_path: Path) -> None:
    beside = str(Path(sys.executable).parent)
    shellcheck = shutil.which("shellcheck", path=f"{beside}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed; the extra `dev` brings it")
    for name in SCRIPTS:
        (tmp_path / f"{name}.sh").write_text(SCRIPTS[name]())
    done = subprocess.run(  # SC2016 warns of what quoting is for: '$(x)' stays as it is
        [shellcheck, "--exclude=SC2016", *tmp_path.glob("*.sh")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# What a script finds on PATH in place of SLURM's commands: they write down what they got, one argument a line.
STUB = """#!/bin/bash
printf '%s\\0' "$(basename "$0")" "$@" >>"$LOG"
printf '\\n' >>"$LOG"
case $(basename "$0") in
scontrol) [[ $1 == requeue ]] || printf 'n1\\nn2\\n' ;;
python) if [[ $4 == begin ]]; then echo "$BEGIN"; else echo "$DECISION"; fi ;;
srun) exit "$CODE" ;;
esac
"""


def run_script(
    script: str, folder: Path, *, code: int = 0, begin: str = "go", decision: str = "end", task: str = ""
) -> tuple[int, list[list[str]]]:
    """Execute a script with stubs on PATH; its exit code, and what each of SLURM's commands got."""
    binaries = folder / "bin"
    if not binaries.exists():
        binaries.mkdir()
        for name in ("srun", "scontrol", "python", "apptainer"):
            (binaries / name).write_text(STUB)
            (binaries / name).chmod(0o755)
    log = folder / "log"
    log.unlink(missing_ok=True)
    environment = {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "LOG": str(log),
        "CODE": str(code),
        "BEGIN": begin,
        "DECISION": decision,
        "SLURM_JOB_ID": "20017",
        "SLURM_ARRAY_TASK_ID": task,
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURMD_NODENAME": "n1",
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
    return done.returncode, calls


def stubbed(site: Profile, folder: Path) -> Profile:
    return dataclasses.replace(site, python=str(folder / "bin" / "python"), source=[], modules=[])


def test_what_the_nodes_are_told(tmp_path: Path) -> None:
    code, calls = run_script(training(stubbed(FULL, tmp_path)), tmp_path)
    assert code == 0
    assert [call[0] for call in calls] == ["python", "scontrol", "srun", "python"]
    step = calls[2]
    assert step == [
        "srun",
        *("--export=ALL", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"),
        *(str(tmp_path / "bin" / "python"), "-P", "-m", "zeromt", "launch", "node", "configs/runs/my run.yaml"),
        *("--nnodes", "2", "--rendezvous", "n1:20017", "--job-id", "20017-0"),
        *("--nproc", "2", "--max-restarts", "3", "--join-timeout", "300", "--node-timeout", "15"),
        *("--interface", "ib0", "--", "seed=2", "name=a;b", "output=it's"),
    ]


def test_what_the_tasks_of_an_array_are_told(tmp_path: Path) -> None:
    for task, share in (("3", ["--part", "3/4"]), ("", ["--merge"])):
        (step,) = run_script(array(stubbed(BARE, tmp_path)), tmp_path, task=task)[1]
        assert step[1:4] == ["--export=ALL", "--nodes=1", "--ntasks=1"]
        assert step[8:] == ["prepare", *share, "configs/runs/my run.yaml", "--", "seed=2", "name=a;b", "output=it's"]


def ended_by(script: str, folder: Path, **changes: Any) -> str:
    """What a script writes into the file for its exit code."""
    (file := folder / "ended").unlink(missing_ok=True)
    run_script(script, folder, **changes)
    return file.read_text() if file.exists() else ""


def test_the_exit_code_is_left_where_it_is_asked_for(tmp_path: Path) -> None:
    """Not if the job comes again; of an array by the merge, or by a part that fails; once by a command."""
    site = dataclasses.replace(stubbed(BARE, tmp_path), environment={"ZEROMT_ENDED": str(tmp_path / "ended")})
    train, parts, once = training(site), array(site), command(site, stdout="out")
    assert [ended_by(train, tmp_path, code=75, decision=one) for one in ("end", "requeue")] == ["75 20017\n", ""]
    assert [ended_by(parts, tmp_path, code=code, task=task) for code, task in ((0, ""), (0, "3"), (2, "3"))] == [
        "0 20017\n",
        "",
        "2 20017_3\n",
    ]
    assert [ended_by(once, tmp_path, code=code) for code in (0, 3)] == ["0 20017\n", "3 20017\n"]
    assert (tmp_path / "out").read_text() == ""
    assert run_script(once, tmp_path)[1] == [], "it has ended before"
    (tmp_path / "ended").unlink()
    (step,) = run_script(once, tmp_path)[1]
    assert step[4:] == [str(tmp_path / "bin" / "python"), "-P", "-m", "zeromt", "export", "a b", "-o", "c"]
    (tmp_path / "ended").unlink()
    assert run_script(command(site, words=("cat", "a b")), tmp_path)[1][0][4:] == ["cat", "a b"]


LATER: dict[str, Any] = {"link": 2, "num_links": 2}
"""Of a chain."""


@pytest.mark.parametrize(
    ("changes", "answers", "code", "starts", "requeues"),
    [
        ({}, {"code": 75, "decision": "end"}, 75, True, False),
        ({}, {"code": 75, "decision": "requeue"}, 75, True, True),
        ({}, {"code": 75, "decision": "Welcome\nrequeue"}, 75, True, True),  # a container may print a banner
        ({}, {"begin": "refuse"}, 2, False, False),
        ({}, {"begin": "Welcome\nrefuse"}, 2, False, False),
        (LATER, {"begin": "end"}, 0, False, False),
        (LATER, {"begin": "go"}, 0, True, False),
    ],
)
def test_it_does_what_is_decided(
    tmp_path: Path, changes: dict[str, Any], answers: dict[str, Any], code: int, starts: bool, requeues: bool
) -> None:
    found, calls = run_script(training(stubbed(BARE, tmp_path), **changes), tmp_path, **answers)
    assert (found, "srun" in [call[0] for call in calls]) == (code, starts)
    assert (["scontrol", "requeue", "20017"] in calls) == requeues


def test_what_the_decision_is_told(tmp_path: Path) -> None:
    calls = run_script(training(stubbed(BARE, tmp_path), **LATER), tmp_path, code=75)[1]
    assert [call[4:] for call in calls if call[0] == "python"] == [
        ["begin", "runs/my run", "--link", "2"],
        ["end", "runs/my run", "--code", "75", "--signal", "none", "--max-requeues", "0"],
    ]


LINES = ("\n", "\n#SBATCH --wrap='touch canary'\n", "\r", "\x00", "#SBATCH --wrap=x")
SIGNS = (" ", "&& touch canary", "| touch canary", "\\", "$HOME", "*", "~", "${x:-$(touch canary)}", "!!", "{a,b}")
WORDS = ("a", "é", "@OVERRIDES@", "--", "-x", "%j", "=")
EVIL = st.lists(st.sampled_from(HARM + LINES + SIGNS + WORDS), min_size=1, max_size=4).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    evil=EVIL, where=st.sampled_from(["override", "config", "run", "word", "environment", "source", "image", "mount"])
)
def test_values_arrive_verbatim_or_are_refused(tmp_path: Path, evil: str, where: str) -> None:
    site = dataclasses.replace(stubbed(BARE, tmp_path), container="apptainer", container_image="image")
    changes: dict[str, Any] = {}
    make = array if where == "word" else training
    if where == "word":
        changes["words"] = ("prepare", evil)
    elif where == "override":
        changes["overrides"] = (f"name={evil}", evil)
    elif where in ("config", "run"):
        changes[where] = evil
    elif where == "environment":
        site = dataclasses.replace(site, environment={"EVIL": evil})
    elif where == "source":
        site = dataclasses.replace(site, source=[evil])
    elif where == "image":
        site = dataclasses.replace(site, container_image=evil)
    else:
        site = dataclasses.replace(site, container_mounts=[evil])
    script, message = refusal(lambda: make(site, **changes))
    if message:
        assert re.search(r"[\x00-\x1f]", evil)
        assert len(message.splitlines()) == 1
        return
    assert [line for line in script.splitlines() if line.startswith("#SBATCH")] == [
        line for line in make(BARE).splitlines() if line.startswith("#SBATCH")
    ]
    _, calls = run_script(script, tmp_path)
    assert not (tmp_path / "canary").exists()
    if where not in ("source", "environment", "run"):
        (step,) = [call for call in calls if call[0] == "srun"]
        assert evil in step
    if where == "run":
        assert any("launcher.slurm.decide" in call and evil in call for call in calls)


WHERE = (
    *("partition", "account", "qos", "reservation", "constraint", "memory"),
    *("nodelist", "exclude", "licenses", "gpu_type"),
)


@settings(max_examples=80, deadline=None)
@given(evil=EVIL, where=st.sampled_from(WHERE))
def test_what_the_scheduler_reads_has_a_pattern(evil: str, where: str) -> None:
    script, message = refusal(lambda: training(load_profile(None, (), {where: evil, "time": "60"})))
    if message:
        assert len(message.splitlines()) == 1
        assert where in message
        return
    assert re.fullmatch(r"[A-Za-z0-9_.,:@+=/*|&()\[\]-]+", evil)
    assert re.search(rf"=('?|.*:){re.escape(evil)}('|:8|)\n", script)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a b"}, "--job-name: 'a b'"),
        ({"name": "a\n#SBATCH --x"}, "--job-name: 'a\\n#SBATCH --x'"),
        ({"folder": "/it's"}, 'the current folder: "/it\'s" holds "\'"'),
        ({"output": "/a\nb/%j"}, "output: '/a\\nb/' holds '\\n'"),
        ({"output": "/a%u/%j"}, "output: '/a%u/' holds '%'"),
        ({"overrides": ("a\nb",)}, "override: 'a\\nb'"),
        ({"nodes": "0"}, "--nodes: '0'"),
        ({"nodes": "3-2"}, "--nodes: '3-2'"),
        ({"nodes": "2;x"}, "--nodes: '2;x'"),
    ],
)
def test_refused_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        training(BARE, **changes)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


def test_nodes() -> None:
    assert (check_nodes("2-16"), most_nodes("2-16"), most_nodes("3")) == ("2-16", 16, 3)


def test_a_parent_is_one_word_whatever_it_is_called() -> None:
    assert "--from 'runs/my base@500'" in training(BARE, parent="runs/my base@500")
    assert "--from" not in training(BARE)
