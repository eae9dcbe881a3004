"""Seconds from the command to the end of the first update, with warm caches.

    python -m benchmarks.startup.first_update --source train.en --target train.de [--eole-python PATH]

`zeromt train`, `zeromt launch local` on two ranks, the plain loop and Eole train the same small model on the same
pairs.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.child import ROOT, environment
from benchmarks.common.measure import machine, median, parser, print_machine, print_table, run_main, spread
from benchmarks.common.results import Row, figure, record
from benchmarks.peers import foreign_trainers
from benchmarks.training import trainers
from benchmarks.training.train import SIZES
from benchmarks.training.trainers import Work
from configs import UserError

TARGET_SECONDS = 8.0
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
Program = Callable[[], float]
"""Trains, and returns the seconds from its command to the end of the first update."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    args = options().parse_args(arguments)
    figures: dict[str, Any] = {"machine": machine(), "settings": vars(args)}
    print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Work(
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


def rows_of(rounds: Sequence[dict[str, float]]) -> list[Row]:
    """The rows of the result file."""
    rows: list[Row] = []
    for name in rounds[0]:
        row: Row = {"program": name, "seconds": figure(r[name] for r in rounds)}
        rows.append(row | ({"target": TARGET_SECONDS} if name.startswith("zeromt") else {}))
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


def choose(args: Any, work: Work) -> dict[str, Program]:
    """The programs of each round. Each runs once here, to warm caches and write configurations."""
    one, two = (
        work.folder / trainers.ours(work, precision=args.precision, ranks=ranks, stage=stage)["run"] / "config.yaml"
        for ranks, stage in ((1, 0), (2, 1))
    )
    plain = partial(plain_loop, work, DTYPES[args.precision])
    plain()
    programs: dict[str, Program] = {
        "zeromt train": partial(zeromt, work, ["train", str(one)]),
        "zeromt launch local --nproc 2": partial(zeromt, work, ["launch", "local", str(two), "--nproc", "2"], ranks=2),
        "plain loop": plain,
    }
    if args.eole_python is None:
        print("eole: --eole-python not given, skipped")
    else:
        foreign_trainers.eole(work, args.eole_python)
        programs["eole"] = partial(eole, work, args.eole_python)
    return programs


def measure(programs: dict[str, Program], number: int) -> dict[str, float]:
    """Run every program once."""
    found = {}
    for name, program in programs.items():
        found[name] = program()
        print(f"round {number}: {name}: {found[name]:.2f} s", flush=True)
    return found


def zeromt(work: Work, command: Sequence[str], *, ranks: int = 1) -> float:
    """A zeromt command that trains; its log has a line for every update."""
    began = time.time()
    name = f"started-{time.time_ns()}"
    env = environment() | {"OMP_NUM_THREADS": str(max(1, work.threads // ranks))}
    lines = stamped([sys.executable, "-m", "zeromt", *command, f"name={name}"], env, ROOT)
    return first_match(lines, r"^step 1 ") - began


def plain_loop(work: Work, dtype: str) -> float:
    """The plain loop."""
    seconds: float = trainers.plain(work, dtype=dtype)["first_update_seconds"]
    return seconds


def eole(work: Work, python: str) -> float:
    """`eole train` with the configuration of `foreign_trainers.eole`; its log has a line for every update."""
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = str(work.threads)
    began = time.time()
    command = [python, "-m", "eole.bin.main", "train", "-config", str(work.folder / "eole.yaml")]
    return first_match(stamped(command, env, work.folder), r"Step\s+1/") - began


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


def report(rounds: Sequence[dict[str, float]]) -> None:
    """Print the seconds of each program."""
    rows = []
    for name in rounds[0]:
        seconds = [r[name] for r in rounds]
        row = {"program": name, "seconds": spread(seconds), "target": "", "": ""}
        if name.startswith("zeromt"):
            row["target"] = f"{TARGET_SECONDS:g}"
            row[""] = "holds" if median(seconds) <= TARGET_SECONDS else "does NOT hold"
        rows.append(row)
    print_table("from the command to the end of the first update", rows)


if __name__ == "__main__":
    run_main(main)
