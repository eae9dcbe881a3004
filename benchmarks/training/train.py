"""Training speed in target tokens a second: zeromt, a plain loop, Transformers, Eole.

    python -m benchmarks.training.train --source train.en --target train.de

A program that is not installed is skipped with a message. Eole needs its own Python environment:
--eole-python PATH.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.measure import (
    machine,
    median,
    parser,
    print_machine,
    print_table,
    run_main,
    spread,
)
from benchmarks.common.results import Row, figure, record
from benchmarks.common.stolen import DISTURBED, StolenTime, undisturbed
from benchmarks.peers import foreign_trainers
from benchmarks.training import trainers
from benchmarks.training.trainers import Work
from configs import UserError
from trainer.ranks.precision import resolve_precision

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
REFERENCE = "plain loop"
OURS = "zeromt fp32"
TARGETS = {  # program: (other program, lowest target ratio)
    OURS: [(REFERENCE, 1.0), ("eole", 1.2), ("transformers", 1.25)],
    "zeromt bf16": [("zeromt fp32", 1.2)],
    "plain loop": [("eole", 1.05)],
}
UNDISTURBED = "undisturbed_tokens_per_second"
Program = Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 if a program failed."""
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
    figures: dict[str, Any] = {"machine": machine()}
    print_machine(figures["machine"])
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
        rounds, failed = take_turns(programs, args.rounds)
    figures["rounds"] = rounds
    figures["sizes"] = work.sizes
    report(rounds, args)
    figures["ratios"] = judge(rounds)
    versions = {name: found["version"] for name, found in rounds[0].items() if "version" in found}
    settings = {name: getattr(args, name) for name in ("threads", "budget", "updates", "rounds")}
    settings["corpus"] = f"{args.source.name}, {args.target.name}"
    record(args, "training", rows_of(rounds, figures["ratios"]), figures, versions=versions, settings=settings)
    return 1 if failed else 0


def choose(args: Any, work: Work) -> dict[str, Program]:
    """The programs that are available and selected."""
    has_transformers = all(importlib.util.find_spec(name) for name in ("transformers", "accelerate"))
    side = trainers.side_of(work)
    every: dict[str, Program | None] = {
        # the programs with the closest comparisons are next to each other, because machines drift during a round, which
        # takes a quarter of an hour
        REFERENCE: partial(trainers.plain, work, dtype="float32"),
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


def take_turns(programs: dict[str, Program], num_rounds: int) -> tuple[list[dict[str, dict[str, Any]]], list[str]]:
    """Run all programs in rounds; returns the figures of each round by program, and the programs that failed.

    Raises:
        UserError: all programs failed.
    """
    rounds: list[dict[str, dict[str, Any]]] = []
    failed: list[str] = []
    for number in range(num_rounds):
        rounds.append({})
        for name in [name for name in programs if name not in failed]:
            try:
                with StolenTime() as stolen:
                    rounds[-1][name] = programs[name]()
                rounds[-1][name] |= undisturbed(rounds[-1][name], stolen)
            except UserError as error:
                print(f"error: {name} failed and is skipped: {error}", file=sys.stderr, flush=True)
                failed.append(name)
                continue
            print(f"round {number + 1}: {name}: {rounds[-1][name]['tokens_per_second']:,.0f} tokens/s", flush=True)
    if len(failed) == len(programs):
        raise UserError("all programs failed")
    return [{name: found for name, found in r.items() if name not in failed} for r in rounds], failed


def report(rounds: Sequence[dict[str, dict[str, Any]]], args: Any) -> None:
    """Print a table with the medians of the rounds."""
    rows = []
    for name in rounds[0]:
        found = [r[name] for r in rounds]

        def of(key: str, form: str, found: list[dict[str, Any]] = found, scale: float = 1.0) -> str:
            values = [f[key] for f in found if key in f]
            return f"{median(values) * scale:{form}}" if values else ""

        rows.append(
            {
                "program": name,
                "tokens/s": of("tokens_per_second", ",.0f"),
                "stolen": of("stolen", ".1%"),
                "undisturbed updates": of("undisturbed_updates", ",.0f"),
                "their tokens/s": of(UNDISTURBED, ",.0f"),
                "s/update": of("seconds_per_update", ".3f"),
                "padded": of("padded_per_update", ",.0f"),
                "padding": of("padding", ".1%"),
                "peak MiB": of("peak_memory", ",.0f", scale=2**-20),
                "waiting for data": of("waiting_for_data", ".2%"),
                "logging": of("logging", ".2%"),
            }
        )
    updates = args.updates - args.warm_up
    print_table(f"target tokens without padding, {args.threads} threads, {len(rounds)} x {updates} updates", rows)
    print(f"undisturbed: updates with at most {DISTURBED:.0%} stolen CPU time; unknown for Eole")
    print("versions: torch", version("torch"), *_versions(rounds[0]))


def _versions(found: dict[str, dict[str, Any]]) -> list[str]:
    return [f"{name} {figures['version']}" for name, figures in found.items() if "version" in figures]


def judge(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Print all ratios that have a target, computed within each round."""
    found: list[dict[str, Any]] = []
    bf16_is_faster = resolve_precision("auto", torch.device("cpu")) == "bf16"
    for name, target in TARGETS.items():
        for of, least in target:
            if name in rounds[0] and of in rounds[0] and (bf16_is_faster or "bf16" not in name):
                ratios = [ratio(r[name], r[of]) for r in rounds]
                found.append({"program": name, "of": of, "target": least, "ratios": ratios})
    if found:
        print_table(
            "ratios of tokens/s within a round, over undisturbed updates if both programs report updates",
            [
                {
                    "program": f["program"],
                    "of": f["of"],
                    "ratio": spread(f["ratios"]),
                    "target": f"{f['target']:.2f}",
                    "": "holds" if median(f["ratios"]) >= f["target"] else "does NOT hold",
                }
                for f in found
            ],
        )
    return found


def rows_of(rounds: Sequence[dict[str, dict[str, Any]]], ratios: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of the result file: the programs, and the ratios of programs other than zeromt in fp32."""
    target = dict(TARGETS[OURS])
    rows: list[Row] = []
    for name in rounds[0]:
        found = [r[name] for r in rounds]
        row: Row = {"part": "programs", "program": name}
        for key in ("tokens_per_second", "seconds_per_update", "padding", "waiting_for_data", "logging", "stolen"):
            if all(key in f for f in found):
                row[key] = median(f[key] for f in found)
        row["peak_mib"] = median(f["peak_memory"] for f in found) / 2**20
        if OURS in rounds[0] and not name.startswith("zeromt"):
            row["zeromt_over_this"] = figure(ratio(r[OURS], r[name]) for r in rounds)
            row |= {"target": target[name]} if name in target else {}
        rows.append(row)
    return rows + [
        {"part": "ratios", "program": f["program"], "of": f["of"], "ratio": figure(f["ratios"]), "target": f["target"]}
        for f in ratios
        if f["program"] != OURS
    ]


def ratio(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Ratio of two rates of a round: over undisturbed updates if both have enough of them, else over all."""
    key = UNDISTURBED if UNDISTURBED in one and UNDISTURBED in other else "tokens_per_second"
    found: float = one[key] / other[key]
    return found


if __name__ == "__main__":
    run_main(main)
