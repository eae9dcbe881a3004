"""A small run, what it comes to when nothing disturbs it, and ways to disturb it."""

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import trainer
from tests.conftest import REPO, Command, Corpus, Start, read_metrics, zeromt
from tests.faults.injected import PLAN, Fault, write_plan, write_shim
from tests.once import once
from trainer.checkpoint.format import CheckpointError, read_checkpoint, verify
from trainer.runs.layout import checkpoint_folder, list_steps, step_of
from trainer.runs.metrics_file import cut_back

LAST, EVALUATED = 20, 10
TORCH_PORT = 29500
SETTINGS = (
    "stream.micro_batches=2",
    "stream.source_tokens=512",
    "stream.target_tokens=512",
    "model.dropout=0.1",
    "optimizer.lr=3e-3",
    "schedule.warmup_updates=10",
    "engine.zero_stage=2",
    f"training.max_updates={LAST}",
    "training.log_every=1",
    "training.tensorboard=false",
    f"evaluation.every_updates={EVALUATED}",
    "evaluation.max_pairs=4",
    "checkpoint.every_updates=5",
    "checkpoint.keep_last=10",
)


@dataclass(frozen=True)
class Run:
    """A run's folder, and the plan of what happens to it."""

    folder: Path
    plan: Path
    settings: tuple[str, ...]
    """Its overrides."""

    def losses(self) -> dict[int, float]:
        """By step; a step that is missing or stands there twice is an error."""
        lines = read_metrics(self.folder)
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), "steps are missing or doubled"
        return {line["step"]: line["loss"] for line in lines}

    def pairs(self) -> dict[int, int]:
        """By step, a digest of its pairs."""
        return {line["step"]: line["pairs_digest"] for line in read_metrics(self.folder)}

    def last_logged(self) -> int:
        """The newest step in metrics.jsonl; 0 where there is none."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return max((line["step"] for line in read_metrics(self.folder)), default=0)
        return 0

    def events(self, name: str) -> list[dict[str, object]]:
        """The lines of metrics.jsonl of one kind of event."""
        return [line for line in read_metrics(self.folder, "event") if line["event"] == name]

    def checkpoint(self, step: int) -> Path:
        return checkpoint_folder(self.folder, step)

    def complete_steps(self) -> list[int]:
        """Steps of the checkpoints of which every byte is what the manifest says, the oldest first."""
        steps = []
        for folder in reversed(list_steps(self.folder / "checkpoints")):
            with contextlib.suppress(CheckpointError):
                if not verify(read_checkpoint(folder)):
                    steps.append(step_of(folder) or 0)
        return steps

    def leftovers(self) -> list[str]:
        """Names in the checkpoints' folder that are neither a checkpoint nor `latest`."""
        names = {p.name for p in (self.folder / "checkpoints").glob("*")}
        return sorted(names - {"latest"} - {p.name for p in list_steps(self.folder / "checkpoints")})

    def pointer(self) -> str:
        return (self.folder / "checkpoints" / "latest").read_text().strip()

    def weights(self, step: int) -> dict[str, bytes]:
        """The safetensors files of a checkpoint."""
        return {p.name: p.read_bytes() for p in sorted(self.checkpoint(step).glob("*.safetensors"))}

    def processes(self) -> list[int]:
        """Everything that was started for this run and still lives, whoever its parent is now."""
        mark = f"{PLAN}={self.plan}".encode()
        pids = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not is_dead and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
        return pids

    def assert_same(self, other: "Run") -> None:
        """Losses, pairs and final weights to the last bit, and no process left."""
        assert self.losses() == other.losses()
        assert self.pairs() == other.pairs()
        assert self.weights(LAST) == other.weights(LAST)
        assert self.processes() == []

    def status(self) -> dict[str, object]:
        tree: dict[str, object] = json.loads((self.folder / "status.json").read_text())
        return tree


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


MakeRun = Callable[..., Run]
Launch = Callable[..., Command]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has to stand first on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("shim")
    assert trainer.__file__
    write_shim(folder, Path(trainer.__file__).parent)
    return folder


def injected(shim: Path, run: Run, *command: str) -> list[str]:
    """A command with the run's plan in its environment."""
    return ["env", f"PYTHONPATH={shim}:{REPO}", f"{PLAN}={run.plan}", *command]


def launch_command(run: Run, *options: str, ranks: int = 2, restarts: int = 3) -> list[str]:
    """`zeromt launch local` for a run."""
    counts = ["--nproc", str(ranks), "--max-restarts", str(restarts)]
    return zeromt("launch", "local", "debug", *counts, *run.settings, *options)


def run_of(folder: Path, corpus: Corpus, name: str, overrides: Sequence[str] = ()) -> Run:
    """The run of a name in a folder."""
    settings = (*corpus.overrides, *SETTINGS, f"output={folder}", f"name={name}", *overrides)
    return Run(folder=folder / name, plan=folder / f"{name}.plan", settings=settings)


@pytest.fixture
def make_run(corpus_en_fr: Corpus, tmp_path: Path) -> MakeRun:
    """A run that is to be disturbed; begun where `after` (a run, a step) stood, if that is given."""

    def make(
        *faults: Fault, name: str = "run", overrides: Sequence[str] = (), after: tuple[Run, int] | None = None
    ) -> Run:
        run = run_of(tmp_path, corpus_en_fr, name, overrides)
        write_plan(run.plan, faults)
        if after is not None:
            begin_after(run, *after)
        return run

    return make


def begin_after(run: Run, other: Run, step: int) -> None:
    """Let a run stand where another one stood when it had saved a step."""
    (run.folder / "checkpoints").mkdir(parents=True)
    for folder in list_steps(other.folder / "checkpoints"):
        if (step_of(folder) or 0) <= step:
            shutil.copytree(folder, run.folder / "checkpoints" / folder.name)
    (run.folder / "checkpoints" / "latest").write_text(f"{other.checkpoint(step).name}\n")
    shutil.copy2(other.folder / "metrics.jsonl", run.folder)
    cut_back(run.folder / "metrics.jsonl", step)


@pytest.fixture
def launch(start: Start, shim: Path) -> Launch:
    """Start `zeromt launch local` for a run, with its faults."""

    def begin(run: Run, *options: str, ranks: int = 2, restarts: int = 3) -> Command:
        return start(*injected(shim, run, *launch_command(run, *options, ranks=ranks, restarts=restarts)))

    return begin


@pytest.fixture(scope="session")
def undisturbed(corpus_en_fr: Corpus, shim: Path) -> Run:
    """What every disturbed run is held against; not to be written to."""

    def train(folder: Path) -> None:
        run = run_of(folder, corpus_en_fr, "undisturbed")
        write_plan(run.plan, [])
        with socket.create_server(("", 0)) as server, contextlib.ExitStack() as also:
            with contextlib.suppress(OSError):  # taken already: as good
                also.enter_context(socket.create_server(("", TORCH_PORT)))
            taken = [f"MASTER_PORT={server.getsockname()[1]}", "MASTER_ADDR=localhost"]
            command = injected(shim, run, "env", *taken, *launch_command(run))
            done = Command(command, cwd=folder).finish()
        assert done.code == 0, done.err[-4000:]
        assert run.complete_steps() == [5, 10, 15, 20]

    return run_of(once("undisturbed", train), corpus_en_fr, "undisturbed")


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
