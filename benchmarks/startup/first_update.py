"""Seconds from the command to the end of the first update, with warm caches, and the parts of zeromt's time.

    python -m benchmarks.startup.first_update --source train.en --target train.de [--eole-python PATH]

`zeromt train`, `zeromt launch local` on two ranks, the plain loop and Eole train the same small model on the same
pairs. Each round also runs `zeromt train` with timers around its parts: it imports one package after the other, then
runs the command. The time of a package is what it adds to the packages before it.
"""

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common.child import ROOT, environment
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main, spread
from benchmarks.common.results import Row, figure, record
from configs import UserError

if TYPE_CHECKING:
    from benchmarks.training.trainers import Work

TIMED_PARTS = "--timed-parts"
TARGET_SECONDS = 8.0
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
STARTUP = "interpreter, reading the command and the configuration's libraries"
IMPORTS = (
    "deepspeed",
    "torch.utils.tensorboard",
    "webdataset",
    "sentencepiece",
    "sacrebleu",
    "trainer.build",
)
PARTS = {
    "configuration and checks": (
        "configs:load_run",
        "trainer.main:load_for_rank",
        "launcher.agents.run_folder:make_ready",
    ),
    "process group": ("trainer.main:World",),
    "run folder and lock": ("trainer.main:make_shared", "trainer.main:RunLock.acquire"),
    "dataset": ("trainer.build:Dataset.load",),
    "looking for checkpoints": ("trainer.build:_open_checkpoints",),
    "model": ("trainer.build:build_model",),
    "engine (deepspeed.initialize)": ("trainer.build:DeepSpeedEngine",),
    "trial step": ("trainer.build:memory.probe",),
    "stream": ("trainer.build:StreamReader",),
    "evaluator": ("trainer.build:make_evaluator",),
    "metrics and TensorBoard": ("trainer.build:RunMetrics",),
    "first data": ("trainer.loop:Trainer._next_update",),
    "first update": ("trainer.loop:Trainer._train_on",),
}
"""Functions to time, by part, in order; none of them calls another."""
LAST = "first update"
Program = Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    from benchmarks.training import trainers  # not at the top: it imports torch, whose import is timed here
    from benchmarks.training.train import SIZES

    args = options().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine(), "settings": vars(args)}
    print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = trainers.Work(
            folder=Path(folder),
            source=args.source.resolve(),
            target=args.target.resolve(),
            threads=args.threads,
            updates=2,
            warm_up=1,
            budget=args.budget,
            sizes=dict(SIZES),
        )
        work.sizes.update(trainers.prepare(work, args.vocab))
        programs = choose(args, work)
        rounds = [measure(programs, number + 1) for number in range(args.rounds)]
    report(rounds)
    figures["rounds"] = rounds
    settings = {name: getattr(args, name) for name in ("precision", "threads", "rounds")}
    record(args, "startup", rows_of(rounds), figures, settings=settings)
    return 0


def rows_of(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[Row]:
    """The rows of the result file: the programs, and the parts of zeromt's time."""
    rows: list[Row] = []
    for name in rounds[0]:
        if name != TIMED_PARTS:
            row = {
                "part": "programs",
                "program": name,
                "seconds": figure(r[name]["first_update_seconds"] for r in rounds),
            }
            rows.append(row | ({"target": TARGET_SECONDS} if name.startswith("zeromt") else {}))
    for part in rounds[0][TIMED_PARTS]["parts"]:
        seconds = figure(r[TIMED_PARTS]["parts"][part] for r in rounds)
        rows.append({"part": "of zeromt train", "what": part, "seconds": seconds})
    return rows


def options() -> Any:
    """The command line."""
    found = parser(__doc__)
    found.add_argument("--source", type=Path, required=True)
    found.add_argument("--target", type=Path, required=True)
    found.add_argument("--precision", choices=DTYPES, default="fp32")
    found.add_argument("--vocab", type=int, default=8000)
    found.add_argument("--budget", type=int, default=4096, help="padded tokens of an update, both sides together")
    found.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--eole-python", metavar="PATH")
    return found


def choose(args: Any, work: "Work") -> dict[str, Program]:
    """The programs of each round. Each runs once here, to warm caches and write configurations."""
    from benchmarks.peers import foreign_trainers
    from benchmarks.training import trainers

    one, two = (
        work.folder / trainers.ours(work, precision=args.precision, ranks=ranks, stage=stage)["run"] / "config.yaml"
        for ranks, stage in ((1, 0), (2, 1))
    )
    plain = partial(trainers.plain, work, dtype=DTYPES[args.precision])
    plain()
    programs: dict[str, Program] = {
        "zeromt train": partial(zeromt, work, ["train", str(one)]),
        "zeromt launch local --nproc 2": partial(zeromt, work, ["launch", "local", str(two), "--nproc", "2"], ranks=2),
        "plain loop": plain,
        TIMED_PARTS: partial(breakdown, work, one),
    }
    if args.eole_python is None:
        print("eole: --eole-python not given, skipped")
    else:
        foreign_trainers.eole(work, args.eole_python)
        programs["eole"] = partial(eole, work, args.eole_python)
    return programs


def measure(programs: dict[str, Program], number: int) -> dict[str, dict[str, Any]]:
    """Run every program once."""
    found = {}
    for name, program in programs.items():
        found[name] = program()
        print(f"round {number}: {name}: {found[name]['first_update_seconds']:.2f} s", flush=True)
    return found


def zeromt(work: "Work", command: Sequence[str], *, ranks: int = 1) -> dict[str, Any]:
    """A zeromt command that trains; its log has a line for every update."""
    began = time.time()
    name = f"started-{time.time_ns()}"
    env = environment() | {"OMP_NUM_THREADS": str(max(1, work.threads // ranks))}
    lines = stamped([sys.executable, "-m", "launcher", *command, f"name={name}"], env, ROOT)
    return {"first_update_seconds": first_match(lines, r"^step 1 ") - began}


def eole(work: "Work", python: str) -> dict[str, Any]:
    """`eole train` with the configuration of `foreign_trainers.eole`; its log has a line for every update."""
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = str(work.threads)
    began = time.time()
    command = [python, "-m", "eole.bin.main", "train", "-config", str(work.folder / "eole.yaml")]
    return {"first_update_seconds": first_match(stamped(command, env, work.folder), r"Step\s+1/") - began}


def stamped(command: Sequence[str], env: Mapping[str, str], folder: Path) -> list[tuple[float, str]]:
    """The output lines of a command, stdout and stderr, with their arrival times in seconds since the epoch.

    Raises:
        UserError: it failed; the message has the end of its output.
    """
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = [(time.time(), line) for line in process.stdout]
    if process.returncode:
        end = "".join(line for _, line in lines[-30:])
        raise UserError(f"{' '.join(command[1:4])}: exit code {process.returncode}\n{end}")
    return lines


def first_match(lines: Sequence[tuple[float, str]], pattern: str) -> float:
    """Arrival time of the first line that matches a regular expression.

    Raises:
        UserError: no line matches.
    """
    for at, line in lines:
        if re.search(pattern, line):
            return at
    raise UserError(f"no line of the log matches {pattern!r}\n{''.join(line for _, line in lines[-30:])}")


def breakdown(work: "Work", config: Path) -> dict[str, Any]:
    """Run `zeromt train` with timers around its parts."""
    name = f"timed-parts-{time.time_ns()}"
    result = work.folder / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.startup.first_update", TIMED_PARTS, str(time.time()), str(result)]
    command += ["train", str(config), f"name={name}"]
    stamped(command, environment() | {"OMP_NUM_THREADS": str(work.threads)}, ROOT)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


class Clock:
    """Seconds of each part from the command to the end of the first update."""

    def __init__(self, began: float) -> None:
        """Start the clock; `began` is the time of the command in seconds since the epoch."""
        self._began = began
        self.parts = {STARTUP: time.time() - began}
        self.total = 0.0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to a part, unless the first update is already done."""
        begin = time.perf_counter()
        yield
        if LAST not in self.parts:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - begin
            self.total = time.time() - self._began

    def around(self, target: str, name: str) -> None:
        """Add the time of calls of `module:attribute` to a part."""
        module, _, path = target.partition(":")
        *owners, last = path.split(".")
        owner = reduce(getattr, owners, importlib.import_module(module))
        call = getattr(owner, last)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return call(*args, **kwargs)

        setattr(owner, last, timed)


def run_timed_parts(began: str, result: str, *command: str) -> int:
    """Import the packages of the command in its order, then run it; returns its exit code."""
    clock = Clock(float(began))
    with clock.part("import launcher"):
        launcher = importlib.import_module("launcher.cli")
        importlib.import_module("launcher.commands")
    # before torch, as in the command, because the watchdog forks
    importlib.import_module("trainer.runs.signals").stop_request()
    importlib.import_module("trainer.ranks.watchdog").process_watchdog().start()
    with clock.part("import torch"):
        importlib.import_module("torch")
    with clock.part("import trainer.main"):
        importlib.import_module("trainer.main").tune_process()  # needed by DeepSpeed's import to find the device
    for package in IMPORTS:
        with clock.part(f"import {package}"):
            importlib.import_module(package)
    for name, targets in PARTS.items():
        for target in targets:
            clock.around(target, name)
    code: int = launcher.main(command)
    rest = clock.total - sum(clock.parts.values())
    figures = {"first_update_seconds": clock.total, "parts": clock.parts | {"all else": rest}}
    Path(result).write_text(json.dumps(figures), encoding="utf-8")
    return code


def report(rounds: Sequence[dict[str, dict[str, Any]]]) -> None:
    """Print two tables: the programs, and the parts of zeromt's start."""
    rows = []
    for name in rounds[0]:
        seconds = [r[name]["first_update_seconds"] for r in rounds]
        row = {"program": "zeromt train, timed parts" if name == TIMED_PARTS else name, "seconds": spread(seconds)}
        row |= {"target": "", "": ""}
        if name.startswith("zeromt"):
            row["target"] = f"{TARGET_SECONDS:g}"
            row[""] = "holds" if median(seconds) <= TARGET_SECONDS else "does NOT hold"
        rows.append(row)
    print_table("from the command to the end of the first update", rows)
    whole = median(r[TIMED_PARTS]["first_update_seconds"] for r in rounds)
    parts = {name: [r[TIMED_PARTS]["parts"][name] for r in rounds] for name in rounds[0][TIMED_PARTS]["parts"]}
    print_table(
        "of which zeromt train",
        [{"part": n, "seconds": spread(s), "fraction": f"{median(s) / whole:.1%}"} for n, s in parts.items()],
    )


if __name__ == "__main__":
    run_main(lambda: run_timed_parts(*sys.argv[2:]) if sys.argv[1:2] == [TIMED_PARTS] else main())
