"""A scheduler of somebody else's, in one file outside of the repository: one that prints what is to be run."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import install_plugin
from tests.launcher.conftest import ROOT, Zeromt, environment

PAPER = '''
"""A scheduler that prints the command: somebody carries it to a machine."""

import shlex
import subprocess
import sys

from configs import UserError
from configs.components import component
from configs.fields import Positive
from launcher.jobs import BatchCluster, End, JobState, Training


@component("cluster", "paper")
class Paper(BatchCluster):
    """Prints the command, for somebody who carries it."""

    carrier: str = "you"
    copies: Positive = 1

    def render(self, job):
        if not isinstance(job, Training):
            return shlex.join(job.command("PART")) + "\\n"
        command = job.node_command(nnodes=job.nodes, rendezvous="desk:29500", job_id="one", node_rank="RANK")
        return f"{self.carrier}: {shlex.join(command)}\\n" * self.copies

    def submit(self, text, *, after, needs_success):
        if self.carrier == "nobody":
            raise UserError("carrier: nobody; allowed is somebody who comes")
        print(text, end="")
        return "page-2" if after else "page-1"

    def query(self, job):
        if self.carrier == "slow":
            return JobState(id=job, state="PENDING", reason="asleep")
        return JobState(id=job, state="GONE", end=End.LOST_NODE)

    def owns(self, job, logs):
        return self.carrier != "stranger"

    def stop(self, job):
        print(f"{job} is thrown away")

    def log(self, job, logs, *, follow):
        return ["echo", f"{job} says {self.carrier}", *(["for ever"] if follow else [])]


@component("cluster", "post")
class Post(Paper):
    """Sends the command to a machine that shares no files with this one."""

    shares_files = False

    def reach(self, job, words):
        return ["sh", "-c", 'echo "$@"; exit 75', "sh", f"at the desk of {job}:", *words]
'''


@pytest.fixture
def paper(workplace: Path) -> dict[str, str]:
    """The environment of a process that has a package with it installed."""
    folder = workplace / "site-packages"
    folder.mkdir()
    install_plugin(folder, "clusters", PAPER)
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}


def test_its_command_is_rendered_and_submitted(zeromt: Zeromt, paper: dict[str, str], workplace: Path) -> None:
    arguments = ("launch", "paper", "debug", "--nodes", "2", "--nproc", "1", "--set", "carrier=Ann", "prepare.root=a b")
    shown = zeromt(*arguments, "--dry-run", **paper)
    assert shown.returncode == 0, shown.stderr
    carrier, _, command = shown.stdout.partition(": ")
    assert carrier == "Ann"
    words = shlex.split(command)
    assert words[1:] == [
        *("-P", "-m", "zeromt", "launch", "node", "debug", "--nproc", "1", "--max-restarts", "3"),
        *(
            "--nnodes",
            "2",
            "--rendezvous",
            "desk:29500",
            "--job-id",
            "one",
            "--node-rank",
            "RANK",
            "--",
            "prepare.root=a b",
        ),
    ]
    assert not (workplace / "runs").exists()
    done = zeromt(*arguments, **paper)
    assert (done.returncode, done.stdout) == (0, f"{shown.stdout}page-1\n")
    assert (workplace / "runs" / "debug" / "logs" / "paper-page-1.sh").read_text() in done.stdout
    assert "zeromt: submitted job page-1\n" in done.stderr


def test_its_section_of_a_profile_is_checked_like_ours(zeromt: Zeromt, paper: dict[str, str], workplace: Path) -> None:
    (workplace / "desk.yaml").write_text("scheduler: paper\npaper: {carrier: Bob, copies: 2}\n")
    shown = zeromt("launch", "paper", "debug", "--nproc", "1", "--site", "desk.yaml", "--dry-run", **paper)
    assert shown.stdout.count("Bob: ") == 2
    for setting, said in (
        ("copies=0", "copies: 0; allowed is greater than 0"),
        ("copeis=1", "copeis: unknown key; did you mean copies?"),
        ("carrier=nobody", "carrier: nobody; allowed is somebody who comes"),
    ):
        done = zeromt("launch", "paper", "debug", "--nproc", "1", "--site", "desk.yaml", "--set", setting, **paper)
        assert (done.returncode, done.stderr) == (2, f"zeromt: error: {said}\n")
    other = zeromt("launch", "slurm", "debug", "--nproc", "1", "--site", "desk.yaml", **paper)
    assert other.returncode == 2
    assert "scheduler: paper; use `zeromt launch paper`, or a profile for slurm" in other.stderr


def test_it_is_asked_for_its_jobs(zeromt: Zeromt, paper: dict[str, str], workplace: Path) -> None:
    assert zeromt("launch", "paper", "debug", "--nproc", "1", "--set", "carrier=slow", **paper).returncode == 0
    status = zeromt("status", "runs/debug", **paper)
    assert "job          page-1 PENDING, asleep\n" in status.stdout
    assert zeromt("log", "runs/debug", "--follow", **paper).stdout == "page-1 says slow for ever\n"
    stopped = zeromt("stop", "runs/debug", **paper)
    assert (stopped.returncode, stopped.stdout) == (0, "page-1 is thrown away\n")
    assert stopped.stderr == "zeromt: runs/debug: job page-1 was waiting, and is taken out of the queue\n"
    assert zeromt("launch", "paper", "debug", "--nproc", "1", **paper).returncode == 0
    found = json.loads(zeromt("status", "runs/debug", "--json", **paper).stdout)
    assert found["job"] == {"id": "page-1", "state": "GONE", "reason": None, "time_left": None, "end": "lost node"}
    assert "page-1 GONE, lost node" in zeromt("status", "runs/debug", **paper).stdout
    refused = zeromt("stop", "runs/debug", **paper)
    assert (refused.returncode, refused.stdout) == (2, "")
    gone = json.loads(zeromt("status", "runs/debug", "--json").stdout)  # without the package
    assert gone["job"] == {"id": "page-1", "state": "UNKNOWN", "reason": None, "time_left": None}


def test_an_array_is_parts_and_their_merge(zeromt: Zeromt, paper: dict[str, str]) -> None:
    done = zeromt("launch", "paper", "--array", "4", "--", "prepare", "debug", "--", "seed=2", **paper)
    assert [line.partition(" -P ")[2] for line in done.stdout.splitlines() if " " in line] == [
        "-m zeromt prepare --part PART/4 debug -- seed=2",
        "-m zeromt prepare --merge debug -- seed=2",
    ]
    assert done.stdout.split("\n")[1::2] == ["page-1", "page-2"]


def test_a_cluster_with_files_of_its_own(zeromt: Zeromt, paper: dict[str, str], workplace: Path) -> None:
    """Nothing is looked for here; what is asked of the run is asked there, and the answer's exit code is that."""
    arguments = ("launch", "post", "debug", "--nproc", "1", "--fresh", "prepare.output=/only/there")
    done = zeromt(*arguments, **paper)
    assert done.returncode == 0, done.stderr
    assert "--fresh" in shlex.split(done.stdout)
    assert sorted(path.name for path in (workplace / "runs" / "debug").iterdir()) == ["logs"]
    assert zeromt("launch", "paper", *arguments[2:], **paper).returncode == 2
    for words in (["status", "runs/debug", "--json"], ["stop", "runs/debug", "--no-wait"]):
        asked = zeromt(*words, **paper)
        assert (asked.returncode, asked.stdout) == (75, f"at the desk of page-1: {' '.join(words)}\n")
    record = workplace / "runs" / "debug" / "logs" / "jobs.json"
    record.write_text(record.read_text().replace('"you"', '"stranger"'))
    for words in (["status", "runs/debug"], ["stop", "runs/debug"]):
        asked = zeromt(*words, **paper)
        assert (asked.returncode, asked.stdout) == (2, "")
        assert asked.stderr.startswith("zeromt: error: RUN: runs/debug names job page-1, and post has no job of yours")


def test_its_help_and_names_that_are_none(zeromt: Zeromt, paper: dict[str, str]) -> None:
    shown = zeromt("launch", "paper", "--help", **paper)
    assert (shown.returncode, shown.stdout.partition("\n")[0]) == (
        0,
        "usage: zeromt launch paper CONFIG [--site NAME] [--nodes N] [--nproc N] [--dry-run] [...] "
        "| [...] --array N -- COMMAND ...",
    )
    assert "Prints the command, for somebody who carries it." in shown.stdout
    assert "  zeromt launch paper CONFIG" in zeromt("launch", "--help", **paper).stdout
    for name, near in (("slrum", "slurm"), ("papier", "paper")):
        done = zeromt("launch", name, "debug", **paper)
        said = f"COMMAND: 'launch {name}' is unknown; did you mean launch {near}?; see `zeromt --help`"
        assert (done.returncode, done.stderr) == (2, f"zeromt: error: {said}\n")


@pytest.mark.parametrize("named", ["by an option", "by the configuration"])
def test_a_file_that_the_user_names(zeromt: Zeromt, workplace: Path, named: str) -> None:
    (workplace / "paper.py").write_text(PAPER)
    text = (ROOT / "configs" / "runs" / "debug.yaml").read_text()
    (workplace / "my.yaml").write_text(text + ("plugins: [paper.py]\n" if named == "by the configuration" else ""))
    option = ["--plugins", "paper.py"] if named == "by an option" else []
    arguments = ["launch", "paper", "my.yaml", *option, "--nproc", "1", "prepare.output=data/prepared/debug"]
    done = zeromt(*arguments)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "page-1"), done.stderr
    assert "--plugins" not in done.stdout, "the nodes need no scheduler"
    assert not (workplace / "runs" / "my" / "plugins").exists()
    without = zeromt("launch", "paper", "debug", "--nproc", "1")
    assert without.returncode == 2
    assert without.stderr.startswith("zeromt: error: COMMAND: 'launch paper' is unknown")
    assert "page-1 GONE, lost node" in zeromt("status", "runs/my", "--plugins", "paper.py").stdout
    array = zeromt("launch", "paper", *option, "--array=2", "--dry-run", "--", "prepare", "my.yaml", "--", "seed=2")
    assert array.stdout.splitlines()[0].endswith("-m zeromt prepare --part PART/2 my.yaml -- seed=2"), array.stderr
    refused = zeromt("launch", "paper", "my.yaml", *option, "--plugins", "none.py")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "none.py" in refused.stderr


def test_it_is_no_part_of_the_run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every later command on the run would ask for the file."""
    monkeypatch.chdir(workplace)
    (workplace / "paper.py").write_text(PAPER)
    code = "from configs import load_run; print(load_run('debug', plugins=['paper.py']).plugins)"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
