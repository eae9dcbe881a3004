"""One training run as its user starts it, and every process that a launch of it brought about."""

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common.child import ROOT, environment
from configs import UserError

BUNDLED = ROOT / "data" / "tatoeba-en-fr"
NUM_PAIRS = 4_000
EVERY_UPDATES = 25
MARK = "CHAOS_MARK"
ENDLESS = 1_000_000

# Learned positions are there for the checkpoint's size: a disk can then be full for it, and not for metrics.jsonl.
CONFIG = """
prepare:
  output: {work}/prepared
  root: {work}
  source_language: en
  target_language: fr
  train: {{source: [train.en], target: [train.fr]}}
  valid: {{source: [{bundled}/valid.en.gz], target: [{bundled}/valid.fr.gz]}}
  tokenizer: {{vocab_size: 1000}}
  max_pieces: 128
stream: {{micro_batches: 3, source_tokens: 384, target_tokens: 384}}
model: {{d_model: 64, encoder_layers: 1, decoder_layers: 1, max_positions: 4096, attention: {{num_heads: 2}},
  feed_forward: {{d_ff: 128}}, positions: learned}}
optimizer: {{lr: 2.0e-3}}
schedule: {{warmup_updates: 50}}
engine: {{precision: fp32}}
training: {{log_every: 1, record_pairs: true, tensorboard: false}}
evaluation: {{every_updates: 100, max_pairs: 4}}
checkpoint: {{every_updates: {every}, max_failures: 10}}
"""


@dataclass(kw_only=True, slots=True, frozen=True, order=True)
class Layout:
    """How a launch divides the model."""

    num_ranks: int
    zero_stage: int

    def __str__(self) -> str:
        return f"{self.num_ranks} rank{'s' * (self.num_ranks > 1)}, ZeRO-{self.zero_stage}"


HOME = Layout(num_ranks=2, zero_stage=2)
"""Of the undisturbed run."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Process:
    """A living process of a launch."""

    pid: int
    parent: int
    role: str
    """launcher, agent, rank; helper for what these started otherwise."""
    rank: int | None


class Launch:
    """`zeromt launch local`, running or ended."""

    def __init__(self, arguments: list[str], *, mark: str, log: Path, temporary: Path) -> None:
        self.mark = mark
        self.log = log
        self.begin = time.monotonic()
        variables = {k: v for k, v in environment().items() if not k.startswith(("TORCHELASTIC_", "ZEROMT_"))}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            variables.pop(name, None)
        # Two ranks need no two GPUs on the CPU, and there the same layout gives the same bits.
        variables |= {MARK: mark, "TMPDIR": str(temporary), "CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1"}
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(log.parent / "inductor")  # torch makes one in TMPDIR, for good
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zeromt", *arguments],
                cwd=log.parent,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the launcher has."""
        return self.process.poll() is not None

    def processes(self) -> list[Process]:
        """Every living process that carries the launch's mark in its environment, whoever its parent is by now."""
        return list(_marked(self.mark))

    def one(self, role: str, rank: int | None = None) -> list[Process]:
        """The living processes of a role."""
        return [p for p in self.processes() if p.role == role and rank in (None, p.rank)]

    def wait(self, seconds: float) -> int | None:
        """The launcher's exit code; None where it is still running then."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def wait_for_all(self, seconds: float) -> list[Process]:
        """What is left of it after so many seconds at most."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def kill(self, order: Iterable[Process] | None = None) -> None:
        """SIGKILL to every process, until none is left."""
        victims = list(self.processes() if order is None else order)
        while victims:
            for victim in victims:
                send(victim.pid, signal.SIGKILL)
            time.sleep(0.02)
            victims = self.processes()
        self.process.wait()

    def tail(self, num_lines: int = 12) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-num_lines:])


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """A run's configuration and folders."""

    work: Path
    output: str
    name: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.work / self.output / self.name

    def named(self, name: str) -> "Job":
        """The same configuration under another name, aside."""
        return replace(self, output="references", name=name)

    def start(self, layout: Layout, *, number: int, max_updates: int = ENDLESS, max_restarts: int = 0) -> Launch:
        """Launch it, or go on with it."""
        arguments = [
            *("launch", "local", str(self.work / "chaos.yaml")),
            f"--nproc={layout.num_ranks}",
            f"--max-restarts={max_restarts}",
            f"name={self.name}",
            f"output={self.folder.parent}",
            f"engine.zero_stage={layout.zero_stage}",
            f"training.max_updates={max_updates}",
        ]
        logs, temporary = self.work / "output", self.work / "tmp"
        for folder in (logs, temporary):
            folder.mkdir(exist_ok=True)
        mark = f"{os.getpid()}-{self.name}-{number}"
        return Launch(arguments, mark=mark, log=logs / f"{self.name}-{number:03d}.log", temporary=temporary)


def prepare(work: Path) -> Job:
    """Write corpus and configuration to a folder, and prepare the dataset.

    Raises:
        UserError: the preparation failed.
    """
    for language in ("en", "fr"):
        with gzip.open(BUNDLED / f"train.{language}.gz", "rb") as file:
            (work / f"train.{language}").write_bytes(b"".join(next(file) for _ in range(NUM_PAIRS)))
    config = work / "chaos.yaml"
    config.write_text(CONFIG.format(work=work, bundled=BUNDLED, every=EVERY_UPDATES))
    command = [sys.executable, "-m", "zeromt", "prepare", str(config)]
    done = subprocess.run(command, cwd=work, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"zeromt prepare: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return Job(work=work, output="runs", name="storm")


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was a process to receive it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _marked(mark: str) -> Iterator[Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (read := _read(Path(entry.path), f"{MARK}={mark}".encode())) is not None:
            found[int(entry.name)] = read
    for pid, (parent, role, rank) in found.items():
        # A fork that has not yet become another program looks like its parent.
        is_fork = parent in found and found[parent][1] == role
        yield Process(pid=pid, parent=parent, role="helper" if is_fork else role, rank=rank)


def _read(folder: Path, wanted: bytes) -> tuple[int, str, int | None] | None:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
        if wanted not in variables:
            return None
        words = (folder / "cmdline").read_bytes().split(b"\0")
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended, or is another user's
        return None
    rank = next((int(v[5:]) for v in variables if v.startswith(b"RANK=")), None)
    for word, role in ((b"launcher.agents.agent", "agent"), (b"trainer", "rank"), (b"zeromt", "launcher")):
        if word in words:
            return parent, role, rank
    return parent, "helper", rank
