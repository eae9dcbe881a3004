"""Training on GPUs: MFU, peak memory compared with `zeromt plan`, other programs, and ZeRO stages.

    python -m benchmarks.device.training --json gpu.json --profile gpu-profile.txt
    python -m benchmarks.device.training --gpus 8 --tokens 32768 --set engine.compile=true
    python -m benchmarks.device.training --device cpu --tokens 256 --vocab 200 --pairs 2000 --updates 6 --warm-up 2 \\
        --set model.d_model=32 model.attention.num_heads=2 model.feed_forward.d_ff=64 \\
        model.encoder_layers=1 model.decoder_layers=1

Needs one or more GPUs with bf16: 12 GiB for zeromt and an estimated 40 GiB for the others at the default budgets (less
with --tokens 4096); 5 GB of disk in --work, for the final checkpoint of a run; and `pip install 'transformers[torch]'`
for Transformers. Takes an estimated half an hour, less with --rounds 1. The last command above tests everything on a
CPU, where the figures mean nothing.

Each of --runs is a shipped run with its own preset, ZeRO stage and optimizer, in bf16, on synthetic pairs. First, on
one GPU, it takes turns with a plain loop and Transformers on the same pairs and with as many padded tokens per update.
Then it runs on --gpus GPUs with each of --stages, and losses are compared with those of ZeRO-0. MFU (Chowdhery et al.,
2022) is FLOP/s by the formulas of `zeromt plan`, without padding and recomputation, over the card's best rate in square
bf16 matmuls.
"""

import argparse
import dataclasses
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.child import call
from benchmarks.common.measure import machine, parser, print_machine, print_table, run_main
from benchmarks.common.results import Row, record
from benchmarks.device import plain_loop
from benchmarks.device.programs import PROGRAMS, SETTINGS, attempt, ours, setting_of
from benchmarks.device.rank import PROFILED
from benchmarks.device.report import AGREEMENT, GIB, print_stages, report, worst_difference
from benchmarks.device.work import (
    Figures,
    Job,
    flops_per_target_token,
    planned_peak,
    prepare,
    visible_gpus,
)
from configs import RunConfig, load_run

MATRICES = {"cuda": (4096, 8192, 12288, 16384), "cpu": (128, 256)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0.

    Raises:
        UserError: fewer GPUs are available than requested, or a measurement failed.
    """
    args = _parse(arguments)
    gpus = visible_gpus(args.device, args.gpus)
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if args.device == "cpu" else gpus[0]  # one GPU for each child by default
    figures: Figures = {"machine": machine(), "arguments": vars(args)}
    print_machine(figures["machine"])
    card = call(plain_loop.matrix_rate, device=args.device, sizes=MATRICES[args.device])
    best = f"{card['best'] / 1e12:,.1f} TFLOP/s in square bf16 matmuls"
    print(f"{len(gpus)} x {card['name']}: {best}, torch {card['version']}")
    figures["card"] = card
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        job = Job(
            folder=Path(folder).resolve(),
            gpus=gpus,
            **{name: getattr(args, name) for name in ("device", "tokens", "updates", "warm_up", "vocab", "settings")},
        )
        lengths = prepare(job, args.pairs)
        figures["pairs"] = {"number": len(lengths), "mean_lengths": lengths.mean(axis=0).tolist()}
        figures["runs"] = {}
        for run in args.runs:
            figures["runs"][run] = {}
            for part in measure(job, run, args, lengths=lengths, rate=card["best"]):
                figures["runs"][run] |= part
                record(args, "device_training", rows_of(figures), figures, settings=_settings(args, card))
    return 0


def rows_of(figures: Figures) -> list[Row]:
    """The rows of the result file: everything measured so far on one GPU."""
    rows: list[Row] = []
    for run, found in figures["runs"].items():
        for name, medians in found.get("medians", {}).items():
            row: Row = {"run": run, "program": name}
            row |= {key: medians[key] for key in ("tokens_per_second", "mfu", "padding") if key in medians}
            if medians.get("peak_allocated"):
                row["peak_gib"] = medians["peak_allocated"] / GIB
            if name == "zeromt":
                row["planned_gib"] = found["planned_peak"] / GIB
            rows.append(row)
    return rows


def _settings(args: argparse.Namespace, card: Figures) -> Figures:
    return {
        "device": card["name"],
        "card_tflops": card["best"] / 1e12,
        **{name: getattr(args, name) for name in ("tokens", "vocab", "updates", "rounds")},
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--runs", nargs="+", default=["wmt_base", "wmt_big"], metavar="RUN", help="shipped runs")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs for the comparison of ZeRO stages (1)")
    options.add_argument("--tokens", type=int, default=16384, help="padded tokens per side of a micro-batch (16384)")
    options.add_argument("--vocab", type=int, default=37000, help="size of the joint vocabulary (37000)")
    options.add_argument("--pairs", type=int, default=200_000)
    options.add_argument("--updates", type=int, default=70)
    options.add_argument("--warm-up", type=int, default=20, metavar="N", help="untimed updates at the start (20)")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    options.add_argument("--stages", nargs="*", default=["0", "1", "2", "3", "2-offload"], choices=SETTINGS)
    options.add_argument(
        "--set", dest="settings", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for every run"
    )
    options.add_argument("--profile", type=Path, metavar="FILE", help="write the most expensive operations to FILE")
    args = options.parse_args(arguments)
    if not 0 < args.warm_up < args.updates:
        options.error(f"--warm-up: {args.warm_up}; must be from 1 to {args.updates - 1}, below --updates")
    return args


def measure(
    job: Job, run: str, args: argparse.Namespace, *, lengths: NDArray[np.int64], rate: float
) -> Iterator[Figures]:
    """Measure one run; yields and prints figures as they come. A later figure replaces an earlier one of the same name.

    Args:
        job: data and budgets.
        run: name of a shipped run.
        args: the command line.
        lengths: (pairs, 2), EOS included.
        rate: measured FLOP/s of one card.
    """
    config = load_run(run, job.overrides(world_size=1))
    flops = flops_per_target_token(config.model, job.vocab, lengths)
    programs = {name: program for name, program in PROGRAMS.items() if name in args.programs}
    if "transformers" in programs and not all(map(importlib.util.find_spec, ("transformers", "accelerate"))):
        print("transformers: not installed, skipped")
        del programs["transformers"]
    yield {"flops_per_target_token": flops, "model": dataclasses.asdict(config.model)}
    rounds: list[dict[str, Figures]] = []
    for number in range(args.rounds):
        rounds.append({})
        for name, program in list(programs.items()):
            found = attempt(f"{run}: {name}", partial(program, job, run, config))
            if found is None:
                del programs[name]
                rounds = [{n: f for n, f in r.items() if n != name} for r in rounds]
                continue
            rounds[-1][name] = found
            found["mfu"] = found["tokens_per_second"] * flops / rate
            print(f"{run}: round {number + 1}: {name}: {found['tokens_per_second']:,.0f} tokens/s", flush=True)
            yield {"rounds": rounds}
    planned = planned_peak(job, config, setting_of(config), world_size=1)
    yield {"rounds": rounds, "planned_peak": planned}
    yield report(run, rounds, timed=job.updates - job.warm_up, planned=planned)
    if args.profile:
        write_profile = partial(profile, job, run, config, args.profile, first=run == args.runs[0])
        yield {"profile": attempt(f"{run}: profile", write_profile)}
    for stages in compare_stages(job, run, config, args.stages, full_speed=len(job.gpus) * rate / flops):
        yield {"stages": stages}


def compare_stages(
    job: Job, run: str, config: RunConfig, stages: Sequence[str], *, full_speed: float
) -> Iterator[dict[str, Figures]]:
    """Run every ZeRO setting on all GPUs, and compare losses with those of the first one, usually ZeRO-0.

    Yields the figures of all settings so far, after each.

    Args:
        job: data and budgets.
        run: name of a shipped run.
        config: the resolved configuration of the run.
        stages: some of `SETTINGS`.
        full_speed: target tokens a second at an MFU of 1 on all GPUs together.
    """
    found: dict[str, Figures] = {}
    for stage in sorted(stages, key=SETTINGS.index):
        setting = setting_of(config, stage)
        start = partial(ours, job, run, config, stage=stage, world_size=len(job.gpus))
        figures = attempt(f"{run}: {setting}", start)
        if figures is None:
            continue
        figures["mfu"] = figures["tokens_per_second"] / full_speed
        figures["planned_peak"] = planned_peak(job, config, setting, world_size=len(job.gpus))
        found[str(setting)] = figures
        first = next(iter(found.values()))
        figures["worst_loss"] = worst_difference(figures["losses"], first["losses"])
        figures["agrees"] = figures["worst_loss"] <= AGREEMENT
        yield found
    if found:
        print_stages(run, found, num_ranks=len(job.gpus))


def profile(job: Job, run: str, config: RunConfig, file: Path, *, first: bool) -> Figures:
    """Profile a few updates; writes the operations by device time to a file and prints the first."""
    found: Figures = ours(job, run, config, profiled=True)["profile"]
    busy = found["device_busy"]
    title = f"{run}: {PROFILED} updates of {found['seconds_per_update']:.4f} s under the profiler"
    title += "" if busy is None else f", kernels {busy:.0%} of the time"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w" if first else "a", encoding="utf-8") as out:
        out.write(f"{title}\n{found.pop('table')}\n")
    rows = found["operations"][:12]
    print_table(title, [{"operation": r["name"], "calls": str(r["calls"]), "share": f"{r['share']:.1%}"} for r in rows])
    return found


if __name__ == "__main__":
    run_main(main)
