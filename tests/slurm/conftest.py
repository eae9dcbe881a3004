"""A cluster for the tests of this folder, the project's own submission to it, and what an undisturbed run comes to."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import Corpus, environment, read_metrics, zeromt
from tests.slurm.cluster import Cluster, install, missing_programs
from tests.waiting import wait_until

NUM_UPDATES = 60
TOLERANCE = 1e-5
COMPARED = 20
"""The first updates, whose losses are the same to the tolerance."""
PATIENCE = 600.0
"""Seconds: a machine that does something else beside takes minutes to start eight processes of torch."""
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
SETTINGS = (
    "stream.micro_batches=4",
    "stream.source_tokens=512",
    "stream.target_tokens=512",
    "optimizer.lr=3e-3",
    "schedule.warmup_updates=10",
    f"training.max_updates={NUM_UPDATES}",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=4",
    "checkpoint.every_updates=10",
    "checkpoint.keep_last=1000",
)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes that are idle; installs SLURM where that is possible."""
    install()
    if missing := missing_programs():
        pytest.skip(f"no SLURM: {', '.join(missing)} missing, and no root with apt")
    probe = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, timeout=PATIENCE, check=False)
    if os.geteuid() == 0 and probe.returncode != 0:
        pytest.skip(f"no SLURM without namespaces: {probe.stderr.decode().strip()}")
    folder = Path(tempfile.mkdtemp(prefix="zs-", dir="/tmp"))  # short: unix sockets
    slurm = Cluster(folder, port=17_000 + 10 * (os.getpid() % 300))
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


@dataclass(kw_only=True)
class Job:
    """A run on the cluster."""

    cluster: Cluster
    folder: Path
    """The run's."""
    settings: tuple[str, ...]
    number: str = ""

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Start one of the project's commands, beside the cluster's login."""
        state = {"XDG_STATE_HOME": str(self.folder.parent / "state")}
        return subprocess.Popen(
            zeromt(*arguments),
            cwd=self.folder.parent,
            env={**environment(), **clients(self.cluster), **state, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def zeromt(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run one of the project's commands."""
        child = self.start(*arguments, **variables)
        out, err = child.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def launch(self, *options: str) -> list[str]:
        """The command line that sends the run: two nodes with two processes each."""
        size = ("--nodes", "2", "--nproc", "2", "--site", "cpu", "--set", "signal_lead=60")
        return ["launch", "slurm", "debug", *size, *options, *self.settings]

    def submit(self, *options: str, **variables: str) -> str:
        """Send the run; the job's number."""
        done = self.zeromt(*self.launch(*options), **variables)
        assert done.returncode == 0, done.stderr
        self.number = done.stdout.split()[-1]
        return self.number

    def wait(self, *states: str, seconds: float = PATIENCE) -> Mapping[str, str]:
        """Wait for a state, by default of an end."""
        try:
            return self.cluster.wait_for_job(self.number, states or ENDED, seconds)
        except TimeoutError as error:
            pytest.fail(f"{error}\n{self.output()}")

    def wait_for_step(self, step: int, *, seconds: float = PATIENCE) -> None:
        """Wait until the run has logged a step."""
        wait_until(lambda: self.last_step() >= step, lambda: f"{self.output()}\nstep {step}", seconds=seconds)

    def last_step(self) -> int:
        try:
            return max((line["step"] for line in read_metrics(self.folder)), default=0)
        except (OSError, ValueError):
            return 0

    def output(self) -> str:
        """Of the batch job."""
        path = self.folder / "logs" / f"{self.folder.name}-{self.number}.out"
        return path.read_text(errors="replace") if path.is_file() else "(no output)"

    def process(self, node: str, rank: str | None = None) -> int:
        """The oldest process of the job on a node, which is the launcher; or of one of its ranks there."""
        matches = []
        for one in psutil.process_iter(["environ", "create_time"]):
            given = one.info["environ"] or {}
            where = (given.get("SLURM_JOB_ID"), given.get("SLURMD_NODENAME"))
            if where == (self.number, node) and rank in (None, given.get("RANK")):
                matches.append((one.info["create_time"], one.pid))
        return int(min(matches)[1])

    def updates(self) -> dict[int, tuple[str, float]]:
        """The identifiers' digest and the loss of each update; a step that is missing or doubled is an error."""
        lines = read_metrics(self.folder)
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), "steps are missing or doubled"
        return {line["step"]: (line["pairs_digest"], line["loss"]) for line in lines}

    def resumes(self) -> list[int]:
        """The steps from which the run went on, from the job's output."""
        return [int(step) for step in re.findall(r"resumed from \S+: step (\d+),", self.output())]

    def wait_for_resume(self, number: int, more: int = 0) -> int:
        """Wait until the run has gone on so often, and so many steps from there; the step from which it does."""
        wait_until(lambda: len(self.resumes()) >= number, self.output, seconds=PATIENCE)
        self.wait_for_step((step := self.resumes()[number - 1]) + more)
        return step


MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(cluster: Cluster, corpus_en_fr: Corpus, tmp_path: Path) -> Iterator[MakeJob]:
    """A run for the cluster; what is left of it in the queue at the end is cancelled."""
    made: list[Job] = []

    def make(*overrides: str, name: str = "run") -> Job:
        settings = (*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}", f"name={name}", *overrides)
        made.append(Job(cluster=cluster, folder=tmp_path / name, settings=settings))
        return made[-1]

    yield make
    for job in made:
        if job.number:
            cluster.ask("scancel", job.number, check=False)
            job.wait()


@pytest.fixture(scope="session")
def undisturbed(cluster: Cluster, corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run on this machine from its beginning to its end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = (*corpus_en_fr.overrides, *SETTINGS, f"output={folder}", "name=local")
    job = Job(cluster=cluster, folder=folder / "local", settings=settings)
    done = job.zeromt("launch", "local", "debug", "--nproc", "2", *settings)
    assert done.returncode == 0, done.stderr
    return job


def assert_same_updates(job: Job, reference: Job) -> None:
    """The same identifiers in every update; and losses that agree at first, and roughly later, as rounding grows."""
    updates, expected = job.updates(), reference.updates()
    assert [digest for digest, _ in updates.values()] == [digest for digest, _ in expected.values()]
    losses = [[run[step][1] for step in range(1, COMPARED + 1)] for run in (updates, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=TOLERANCE)


def clients(cluster: Cluster) -> dict[str, str]:
    """The environment that SLURM's commands need."""
    return {name: cluster.environment[name] for name in ("SLURM_CONF", "PATH")}
