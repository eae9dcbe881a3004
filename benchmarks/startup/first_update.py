"""Seconds from the command to the first update done, with warm caches, and what zeromt spends them on.

    python -m benchmarks.startup.first_update --source train.en --target train.de [--eole-python PATH]

`zeromt train`, `zeromt launch local` on two ranks, the plain loop by hand and Eole train the same small model on the
same pairs. One more process of each round is `zeromt train` with a clock around its parts: it imports one package after
the other, then runs the command. What a package takes is what it adds to those before it.
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

CLOCKED = "--clocked"
TARGET_SECONDS = 8.0
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
BEGINNING = "interpreter, reading the command and the configuration's libraries"
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
"""Calls that do not lie in one another, in their order."""
LAST = "first update"
Program = Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    from benchmarks.training import trainers  # not above: it imports torch, whose import is measured here
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
    """The table of a result: the programs, and what zeromt spends its seconds on."""
    rows: list[Row] = []
    for name in rounds[0]:
        if name != CLOCKED:
            row = {
                "part": "programs",
                "program": name,
                "seconds": figure(r[name]["first_update_seconds"] for r in rounds),
            }
            rows.append(row | ({"target": TARGET_SECONDS} if name.startswith("zeromt") else {}))
    for part in rounds[0][CLOCKED]["parts"]:
        seconds = figure(r[CLOCKED]["parts"][part] for r in rounds)
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
    """What is measured in each round; each runs once before, so that caches are warm and configurations written."""
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
        CLOCKED: partial(breakdown, work, one),
    }
    if args.eole_python is None:
        print("eole: no --eole-python, left out")
    else:
        foreign_trainers.eole(work, args.eole_python)
        programs["eole"] = partial(eole, work, args.eole_python)
    return programs


def measure(programs: dict[str, Program], number: int) -> dict[str, dict[str, Any]]:
    """One round."""
    found = {}
    for name, program in programs.items():
        found[name] = program()
        print(f"round {number}: {name}: {found[name]['first_update_seconds']:.2f} s", flush=True)
    return found


def zeromt(work: "Work", command: Sequence[str], *, ranks: int = 1) -> dict[str, Any]:
    """A command of ours that trains; its log tells of every update."""
    began = time.time()
    name = f"started-{time.time_ns()}"
    env = environment() | {"OMP_NUM_THREADS": str(max(1, work.threads // ranks))}
    lines = stamped([sys.executable, "-m", "launcher", *command, f"name={name}"], env, ROOT)
    return {"first_update_seconds": first_match(lines, r"^step 1 ") - began}


def eole(work: "Work", python: str) -> dict[str, Any]:
    """`eole train` by the configuration that `foreign_trainers.eole` wrote; its log tells of every update."""
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = str(work.threads)
    began = time.time()
    command = [python, "-m", "eole.bin.main", "train", "-config", str(work.folder / "eole.yaml")]
    return {"first_update_seconds": first_match(stamped(command, env, work.folder), r"Step\s+1/") - began}


def stamped(command: Sequence[str], env: Mapping[str, str], folder: Path) -> list[tuple[float, str]]:
    """The lines that a command writes on both streams, with the seconds since the epoch at which they came.

    Raises:
        UserError: it failed; the message ends as what it wrote.
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
    """When the first line came that holds a regular expression.

    Raises:
        UserError: none does.
    """
    for at, line in lines:
        if re.search(pattern, line):
            return at
    raise UserError(f"no line of the log matches {pattern!r}\n{''.join(line for _, line in lines[-30:])}")


def breakdown(work: "Work", config: Path) -> dict[str, Any]:
    """`zeromt train` with a clock around its parts."""
    name = f"clocked-{time.time_ns()}"
    result = work.folder / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.startup.first_update", CLOCKED, str(time.time()), str(result)]
    command += ["train", str(config), f"name={name}"]
    stamped(command, environment() | {"OMP_NUM_THREADS": str(work.threads)}, ROOT)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


class Clock:
    """Seconds by part from the command to the end of the first update."""

    def __init__(self, began: float) -> None:
        """Seconds since the epoch at which the command was given."""
        self._began = began
        self.parts = {BEGINNING: time.time() - began}
        self.total = 0.0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time until the `with` block ends, unless the first update is done already."""
        begin = time.perf_counter()
        yield
        if LAST not in self.parts:
            self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - begin
            self.total = time.time() - self._began

    def around(self, target: str, name: str) -> None:
        """Count calls of `module:attribute` to a part."""
        module, _, path = target.partition(":")
        *owners, last = path.split(".")
        owner = reduce(getattr, owners, importlib.import_module(module))
        call = getattr(owner, last)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return call(*args, **kwargs)

        setattr(owner, last, timed)


def run_clocked(began: str, result: str, *command: str) -> int:
    """Import what the command imports, in its order, then run it; its exit code."""
    clock = Clock(float(began))
    with clock.part("import launcher"):
        launcher = importlib.import_module("launcher.cli")
        importlib.import_module("launcher.commands")
    # As the command does, before torch: the watchdog forks.
    importlib.import_module("trainer.runs.signals").stop_request()
    importlib.import_module("trainer.ranks.watchdog").process_watchdog().start()
    with clock.part("import torch"):
        importlib.import_module("torch")
    with clock.part("import trainer.main"):
        importlib.import_module("trainer.main").tune_process()  # which DeepSpeed's import finds the device by
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
    """Two tables: the programs, and the parts of zeromt's start."""
    rows = []
    for name in rounds[0]:
        seconds = [r[name]["first_update_seconds"] for r in rounds]
        row = {"program": "zeromt train, clocked" if name == CLOCKED else name, "seconds": spread(seconds)}
        row |= {"target": "", "": ""}
        if name.startswith("zeromt"):
            row["target"] = f"{TARGET_SECONDS:g}"
            row[""] = "holds" if median(seconds) <= TARGET_SECONDS else "does NOT hold"
        rows.append(row)
    print_table("from the command to the first update done", rows)
    whole = median(r[CLOCKED]["first_update_seconds"] for r in rounds)
    parts = {name: [r[CLOCKED]["parts"][name] for r in rounds] for name in rounds[0][CLOCKED]["parts"]}
    print_table(
        "of which zeromt train",
        [{"part": n, "seconds": spread(s), "share": f"{median(s) / whole:.1%}"} for n, s in parts.items()],
    )


if __name__ == "__main__":
    run_main(lambda: run_clocked(*sys.argv[2:]) if sys.argv[1:2] == [CLOCKED] else main())
