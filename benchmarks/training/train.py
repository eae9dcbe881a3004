"""Training speed in target tokens a second: zeromt, a plain loop, Transformers, Eole.

    python -m benchmarks.training.train --source train.en --target train.de

A program that is not installed is skipped with a message. Eole needs its own Python environment:
--eole-python PATH.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.measure import (
    machine,
    median,
    parser,
    print_machine,
    print_table,
    run_main,
)
from benchmarks.common.results import Row, figure, record
from benchmarks.peers import foreign_trainers
from benchmarks.training import trainers
from benchmarks.training.trainers import Work

SIZES = {
    "d_model": 256,
    "num_heads": 4,
    "d_ff": 1024,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "dropout": 0.1,
    "activation_dropout": 0.1,
}
"""Sizes of the model. Dropout also follows the activation, because Eole always applies it there."""
FIGURES = ("tokens_per_second", "seconds_per_update", "padded_per_update", "padding", "waiting_for_data", "logging")
OURS = "zeromt fp32"
Program = Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    options = parser(__doc__)
    options.add_argument("--source", type=Path, required=True)
    options.add_argument("--target", type=Path, required=True)
    options.add_argument("--vocab", type=int, default=8000)
    options.add_argument("--updates", type=int, default=60)
    options.add_argument("--warm-up", type=int, default=20, metavar="N", help="untimed updates at the start")
    options.add_argument("--budget", type=int, default=4096, help="padded tokens of an update, both sides together")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="+", metavar="PROGRAM")
    options.add_argument("--eole-python", metavar="PATH")
    args = options.parse_args(arguments)
    if not 0 < args.warm_up < args.updates:
        options.error(f"argument --warm-up: {args.warm_up}; must be at least 1 and below --updates ({args.updates})")
    where = machine()
    print_machine(where)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = Work(
            folder=Path(folder),
            source=args.source.resolve(),
            target=args.target.resolve(),
            threads=args.threads,
            updates=args.updates,
            warm_up=args.warm_up,
            budget=args.budget,
            sizes=dict(SIZES),
        )
        work.sizes.update(trainers.prepare(work, args.vocab))
        programs = choose(args, work)
        rounds = take_turns(programs, args.rounds)
    rows = rows_of(rounds)
    title = (
        f"target tokens without padding, {args.threads} threads, {len(rounds)} x {args.updates - args.warm_up} updates"
    )
    print_table(title, rows)
    versions = {name: result["version"] for name, result in rounds[0].items() if "version" in result}
    settings = {name: getattr(args, name) for name in ("threads", "budget", "updates", "rounds")}
    settings["corpus"] = f"{args.source.name}, {args.target.name}"
    record(args, "training", rows, where, versions=versions, settings=settings)
    return 0


def choose(args: Any, work: Work) -> dict[str, Program]:
    """The programs that are available and selected."""
    has_transformers = all(importlib.util.find_spec(name) for name in ("transformers", "accelerate"))
    side = trainers.side_of(work)
    every: dict[str, Program | None] = {
        # the programs with the closest comparisons are next to each other, because machines drift during a round, which
        # takes a quarter of an hour
        "plain loop": partial(trainers.plain, work, dtype="float32"),
        "zeromt bf16": partial(trainers.ours, work, precision="bf16", side=side),
        "zeromt fp32": partial(trainers.ours, work, precision="fp32", side=side),
        "plain loop bf16": partial(trainers.plain, work, dtype="bfloat16"),
        "transformers": partial(trainers.transformers, work) if has_transformers else None,
        "eole": partial(foreign_trainers.eole, work, args.eole_python) if args.eole_python else None,
    }
    chosen = {}
    for name, program in every.items():
        if args.only is not None and name not in args.only:
            continue
        if program is None:
            print(f"{name}: not installed, or its Python not given; skipped")
        else:
            chosen[name] = program
    return chosen


def take_turns(programs: dict[str, Program], num_rounds: int) -> list[dict[str, dict[str, Any]]]:
    """Run all programs in rounds; returns the figures of each round by program.

    Raises:
        UserError: a program failed.
    """
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(num_rounds):
        rounds.append({})
        for name, program in programs.items():
            rounds[-1][name] = program()
            print(f"round {number + 1}: {name}: {rounds[-1][name]['tokens_per_second']:,.0f} tokens/s", flush=True)
    return rounds


def rows_of(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[Row]:
    """The table: medians of the rounds, and ratios that are computed within each round."""
    rows: list[Row] = []
    for name in rounds[0]:
        figures = [r[name] for r in rounds]
        row: Row = {"program": name}
        for key in FIGURES:
            row[key] = median(f[key] for f in figures) if key in figures[0] else ""
        row["peak_mib"] = median(f["peak_memory"] for f in figures) / 2**20
        if OURS in rounds[0]:
            row["zeromt_over_this"] = figure(ratio(r[OURS], r[name]) for r in rounds)
        rows.append(row)
    return rows


def ratio(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Ratio of two rates of a round."""
    quotient: float = one["tokens_per_second"] / other["tokens_per_second"]
    return quotient


if __name__ == "__main__":
    run_main(main)
