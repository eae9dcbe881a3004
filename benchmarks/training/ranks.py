"""Target tokens a second of several ranks at each ZeRO stage, relative to one process with as many threads.

    python -m benchmarks.training.ranks --source train.en --target train.de

All programs are started at once. They take turns of a few updates, while the others are stopped, so that variations of
the machine affect all alike.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from benchmarks.common.child import ROOT
from benchmarks.common.measure import (
    high_water,
    machine,
    median,
    parser,
    print_machine,
    print_table,
    run_main,
    spread,
    tree,
)
from benchmarks.common.results import Row, figure, record
from benchmarks.common.stolen import StolenTime
from benchmarks.training import trainers
from benchmarks.training.train import SIZES
from benchmarks.training.trainers import Work
from configs import UserError

TARGETS = {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.75}
"""Lowest target ratio for two ranks, by ZeRO stage."""
ONE = "one process"
UNTIMED = 2
"""Untimed updates at the start of a turn: the interrupted one, and one to warm the caches."""


class Run:
    """A zeromt run that is stopped (SIGSTOP) except in its turns. Leaving `with` kills it and its children."""

    def __init__(self, work: Work, name: str, **fields: Any) -> None:
        self._name = name
        self._warm_up = work.warm_up
        self._metrics = work.folder / name / "metrics.jsonl"
        self._log = (work.folder / f"{name}.log").open("w+")
        command, env = trainers.our_command(work, name, **fields)
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=self._log, stderr=self._log)
        self.pid = self._process.pid
        self.peak = 0
        """Sum of the processes' high-water marks, in bytes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            for number in (signal.SIGKILL, signal.SIGCONT):
                self._signal(number)
            self._process.wait()
        self._log.close()

    def warm_up(self) -> None:
        """Run the untimed warm-up updates, then stop."""
        self._run_until(self._warm_up)

    def turn(self, updates: int) -> list[dict[str, Any]]:
        """Run `updates` more updates; returns their lines of metrics.jsonl, untimed ones included."""
        known = len(trainers.updates_of(self._metrics))
        self._signal(signal.SIGCONT)
        self._run_until(known + updates)
        return [json.loads(line) for line in trainers.updates_of(self._metrics)[known:]]

    def finish(self) -> None:
        """Let the run finish.

        Raises:
            UserError: it failed; the message has the end of its output.
        """
        self._signal(signal.SIGCONT)
        self._process.wait()
        self._check()

    def _run_until(self, updates: int) -> None:
        while len(trainers.updates_of(self._metrics)) < updates and self._process.poll() is None:
            time.sleep(0.01)
        self._check()
        self._signal(signal.SIGSTOP)
        self.peak = max(self.peak, high_water(self.pid))

    def _check(self) -> None:
        if self._process.poll():
            self._log.seek(0)
            raise UserError(f"{self._name}: exit code {self._process.returncode}\n{self._log.read()[-2000:]}")

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            for pid in tree(self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    options = parser(__doc__)
    options.add_argument("--source", type=Path, required=True)
    options.add_argument("--target", type=Path, required=True)
    options.add_argument("--vocab", type=int, default=8000)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--threads", type=int, help="threads of one process (default: as many as ranks)")
    options.add_argument("--stages", type=int, nargs="+", choices=range(4), default=list(range(4)))
    options.add_argument("--precision", default="fp32")
    options.add_argument("--budget", type=int, default=4096, help="padded tokens of an update, both sides together")
    options.add_argument("--warm-up", type=int, default=20, metavar="N", help="untimed updates at the start")
    options.add_argument("--updates", type=int, default=8, help=f"updates of a turn; the first {UNTIMED} are not timed")
    options.add_argument("--turns", type=int, default=6, help="turns of a round")
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args(arguments)
    threads = args.threads or args.ranks
    for name, value, least in (
        ("--ranks", args.ranks, 2),
        ("--threads", threads, args.ranks),
        ("--updates", args.updates, UNTIMED + 1),
        ("--turns", args.turns, 1),
        ("--rounds", args.rounds, 1),
        ("--warm-up", args.warm_up, 1),
    ):
        if value < least:
            options.error(f"argument {name}: {value}; must be at least {least}")
    figures: dict[str, Any] = {"machine": machine()}
    print_machine(figures["machine"])
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Work(
            folder=Path(folder),
            source=args.source.resolve(),
            target=args.target.resolve(),
            threads=threads,
            updates=args.warm_up + args.updates * args.turns * args.rounds,
            warm_up=args.warm_up,
            budget=args.budget,
            sizes=dict(SIZES),
        )
        work.sizes.update(trainers.prepare(work, args.vocab))
        sides = {ranks: trainers.side_of(work, ranks) for ranks in (1, args.ranks)}
        programs: dict[str, dict[str, Any]] = {ONE: {"side": sides[1]}}
        for stage in args.stages:
            programs[stage_name(stage)] = {"ranks": args.ranks, "stage": stage, "side": sides[args.ranks]}
        with StolenTime() as stolen, ExitStack() as stack:
            runs: dict[str, Run] = {}
            for name, fields in programs.items():
                run = Run(work, name.replace(" ", "-"), precision=args.precision, **fields)
                runs[name] = stack.enter_context(run)
                runs[name].warm_up()
            rounds = [take_turns(runs, args) for _ in range(args.rounds)]
            for run in runs.values():
                run.finish()
        figures |= {"rounds": rounds, "stolen": stolen.fraction(), "peaks": {n: run.peak for n, run in runs.items()}}
    figures["ratios"] = report(figures, args, threads)
    settings = {name: getattr(args, name) for name in ("ranks", "precision", "budget", "turns", "rounds")}
    settings |= {"threads": threads, "corpus": f"{args.source.name}, {args.target.name}", "stolen": figures["stolen"]}
    record(args, "ranks", rows_of(figures, args.ranks), figures, settings=settings)
    return 0


def stage_name(stage: int) -> str:
    """Name of the program with this ZeRO stage."""
    return f"ZeRO-{stage}"


def rows_of(figures: dict[str, Any], ranks: int) -> list[Row]:
    """The rows of the result file."""
    rows: list[Row] = []
    target = {stage_name(stage): least for stage, least in TARGETS.items()} if ranks == 2 else {}
    for name, peak in figures["peaks"].items():
        row: Row = {"program": name, "peak_mib": peak / 2**20}
        for key in ("tokens_per_second", "seconds_per_update", "waiting_for_data", "logging"):
            row[key] = median(r[name][key] for r in figures["rounds"])
        if name != ONE:
            row["of_one_process"] = figure(figures["ratios"][name])
            row |= {"target": target[name]} if name in target else {}
        rows.append(row)
    return rows


def take_turns(runs: dict[str, Run], args: Any) -> dict[str, dict[str, float]]:
    """One round: all runs take turns; returns the figures by program."""
    turns: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in runs}
    for _ in range(args.turns):
        for name, run in runs.items():
            turns[name].append(run.turn(args.updates))
    found = {name: summary(lines) for name, lines in turns.items()}
    rates = ", ".join(f"{name} {f['tokens_per_second']:,.0f}" for name, f in found.items())
    print(f"tokens/s: {rates}", flush=True)
    return found


def summary(turns: Sequence[Sequence[dict[str, Any]]]) -> dict[str, float]:
    """Rates over the timed updates of several turns, from their lines of metrics.jsonl."""
    counted = [line for lines in turns for line in lines[UNTIMED:]]
    seconds = sum(
        lines[-1]["total_seconds"] - lines[UNTIMED - 1]["total_seconds"] for lines in turns if len(lines) > UNTIMED
    )
    return {
        "tokens_per_second": sum(line["target_tokens"] for line in counted) / seconds,
        "seconds_per_update": seconds / len(counted),
        "updates": len(counted),
        "waiting_for_data": sum(line["waiting_for_data"] * line["seconds_per_update"] for line in counted) / seconds,
        "logging": 1 - sum(line["seconds_per_update"] for line in counted) / seconds,
    }


def report(figures: dict[str, Any], args: Any, threads: int) -> dict[str, list[float]]:
    """Print the medians over the rounds; returns each program's rate relative to one process, for each round."""
    rows, ratios = [], {}
    for name, peak in figures["peaks"].items():
        found = [r[name] for r in figures["rounds"]]
        ratios[name] = [
            f["tokens_per_second"] / r[ONE]["tokens_per_second"] for f, r in zip(found, figures["rounds"], strict=True)
        ]
        target = {stage_name(stage): least for stage, least in TARGETS.items()}.get(name) if args.ranks == 2 else None

        def of(key: str, found: list[dict[str, float]] = found) -> float:
            return median(f[key] for f in found)

        rows.append(
            {
                "program": name,
                "tokens/s": f"{of('tokens_per_second'):,.0f}",
                "s/update": f"{of('seconds_per_update'):.3f}",
                "peak MiB": f"{peak / 2**20:,.0f}",
                "waiting for data": f"{of('waiting_for_data'):.2%}",
                "logging": f"{of('logging'):.2%}",
                f"of {ONE}": spread(ratios[name]),
                "target": "" if target is None else f"{target:.2f}",
                "": "" if target is None else "holds" if median(ratios[name]) >= target else "does NOT hold",
            }
        )
    updates = args.turns * (args.updates - UNTIMED)
    print_table(
        f"target tokens without padding, {args.precision}, {args.ranks} ranks or one process, {threads} threads in all,"
        f" {args.rounds} x {updates} updates, {figures['stolen']:.1%} of the cores' time stolen",
        rows,
    )
    return ratios


if __name__ == "__main__":
    run_main(main)
