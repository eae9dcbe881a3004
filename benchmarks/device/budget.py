"""Kernels, collectives, host waits, bytes and FLOPs of an update by ZeRO stage, and Python calls, without a GPU.

    python -m benchmarks.device.budget --preset vaswani_base
    python -m benchmarks.device.budget --preset vaswani_base --json -

One rank of several runs the trainer's loop and DeepSpeed's engine on the pseudo device of the tests, in bf16 with
clipping, at the preset's full size, on tensors without data. Operators that launch a kernel are counted, the memory
that they read and write (each tensor once), the FLOPs of matmuls, and what is sent to other ranks, which are not there
(torch's `fake` group). How long they take only a GPU can say. The Python calls of a pass and of a greedy step are those
of the model alone. With `--json -` the figures go to stdout, and nothing else.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.common.measure import machine, parser, print_table, run_main
from benchmarks.common.results import record
from benchmarks.device.budget_batches import by_operator, padded_shape, padding_fraction, typical_micro_batch
from benchmarks.device.budget_calls import calls
from benchmarks.device.budget_counts import added, collectives, count_update, counts, lone_rank
from benchmarks.device.budget_model import SMALL, count_model
from benchmarks.device.work import flops_per_target_token
from configs import EngineSection, RunConfig, preset_model
from model.flops import BatchShape
from trainer.ranks.distributed import World

TARGETS = [{"added": 260, "step": 60, "waits": 1}] * 3 + [{"added": 650, "step": 850, "waits": 4}]
"""By stage, at most: kernels that DeepSpeed adds to a micro-batch, kernels of the step, and host waits of an update."""
WAITS_TARGET_OFFLOADED = 4
MAX_LINES = 6

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    args = _arguments(arguments)
    calls_of = calls(args.preset)  # before DeepSpeed changes torch's modules
    changes = {} if args.layers is None else {"encoder_layers": args.layers, "decoder_layers": args.layers}
    section = preset_model(args.preset, changes)
    model = count_model(section, shape=SMALL, vocab=args.vocab, kernels=args.kernels)
    world = lone_rank(args.rank, args.ranks)
    stages, rows, lines, sent = {}, [], {}, {}
    for stage in args.stages:
        engine = EngineSection(zero_stage=stage, offload_optimizer=args.offload and stage > 0, kernels=args.kernels)
        config = dataclasses.replace(RunConfig(), model=section, engine=engine)
        found = count_update(
            config, world, shape=SMALL, num_micro_batches=args.micro_batches, vocab=args.vocab, has_numbers=False
        )
        lines[str(stage)] = {
            "waits": dict(found.update.waits.most_common()),
            "uploads": dict(found.update.uploads.most_common()),
            "added": dict(added(found.micro_batches[0], model).most_common()),
            "step": dict(found.step.by_line().most_common()),
        }
        sent[str(stage)] = collectives(found)
        stages[str(stage)] = counts(found, sum(m.num_kernels for m in model))
        rows += [_update(config, world, args.vocab, tokens) for tokens in args.tokens]
    figures = {
        "kernels": {"forward": model[0].num_kernels, "backward": model[1].num_kernels},
        "calls": calls_of,
        "stages": stages,
        "collectives": sent,
        "lines": lines,
        "updates": rows,
    }
    is_piped = str(args.json) == "-"
    with contextlib.redirect_stdout(sys.stderr) if is_piped else contextlib.nullcontext():
        _print(args, figures)
    _write(args, figures)
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--preset", required=True, help="a preset of configs/presets")
    options.add_argument(
        "--layers", type=int, metavar="N", help="layers of encoder and decoder each (default: the preset's)"
    )
    options.add_argument("--vocab", type=int, default=37_000, metavar="PIECES")
    options.add_argument("--ranks", type=int, default=8, metavar="N")
    options.add_argument(
        "--rank",
        type=int,
        metavar="N",
        help="rank to count (default: a middle one, because the first has few, large tensors)",
    )
    options.add_argument(
        "--micro-batches", type=int, default=2, metavar="N", help="micro-batches of the rank in the counted update"
    )
    options.add_argument("--stages", type=int, nargs="+", choices=range(4), default=list(range(4)))
    options.add_argument(
        "--tokens", type=int, nargs="+", default=[3_200, 16_384], help="padded tokens per side of a micro-batch"
    )
    options.add_argument(
        "--kernels", choices=("cuda", "plain"), default="cuda", help="GPU kernels with packed rows, or plain PyTorch"
    )
    options.add_argument("--offload", action="store_true", help="put the optimizer on the host, from stage 1 on")
    args = options.parse_args(arguments)
    least = {"layers": args.layers or 1, "ranks": args.ranks, "micro-batches": args.micro_batches}
    for name, value in {**least, "vocab": args.vocab - 5, "tokens": min(args.tokens) - 127}.items():
        if value < 1:
            options.error(f"argument --{name}: too small")
    if args.rank is None:
        args.rank = args.ranks // 2
    if not 0 <= args.rank < args.ranks:
        options.error(f"argument --rank: {args.rank} must be below --ranks={args.ranks}")
    return args


def _update(config: RunConfig, world: World, vocab: int, tokens: int) -> Row:
    """Counts of an update with one typical micro-batch per rank, as in the shipped runs on eight GPUs."""
    lengths = typical_micro_batch(tokens)
    rows, source, target = padded_shape(lengths)
    shape = BatchShape(rows=rows, source=source, target=target)
    update = count_update(
        config, world, shape=shape, num_micro_batches=1, vocab=vocab, has_numbers=False, lengths=lengths
    ).update
    flops = flops_per_target_token(config.model, vocab, lengths) * int(lengths[:, 1].sum())
    return {
        "stage": config.engine.zero_stage,
        "tokens": tokens,
        "shape": f"{rows} x {source} + {target}",
        "padding": padding_fraction(lengths),
        "kernels": update.num_kernels,
        "gigabytes": sum(call.bytes for call in update.calls) / 1e9,
        "teraflops": flops / 1e12,
        "operators": by_operator(update.calls),
    }


def _print(args: argparse.Namespace, figures: Row) -> None:
    forward, backward = figures["kernels"].values()
    where = f"{args.preset}, rank {args.rank} of {args.ranks}, bf16, clipping, kernels: {args.kernels}"
    where += ", offload" * args.offload
    title = f"{where}: kernels of an update of {args.micro_batches} micro-batches (counted without a GPU)"
    table = [{"": "model alone", "forward + backward": f"{forward} + {backward}"}]
    names = {"added": "added to a micro-batch", "added_later": "to a later one", "step": "step", "waits": "host waits"}
    table += [
        {"": f"ZeRO-{s}", **{text: str(c[key]) for key, text in names.items()}} for s, c in figures["stages"].items()
    ]
    columns = ["", "forward + backward", *names.values()]
    print_table(title, [{c: row.get(c, "") for c in columns} for row in table])
    calls_of = [
        {"": f"kernels: {name}", "a pass": f"{found['pass']:,.0f}", "a greedy step": f"{found['step']:,.0f}"}
        for name, found in figures["calls"].items()
    ]
    print_table("Python calls of the model alone, without those of a GPU's driver", calls_of)
    sent = [
        {
            "": f"ZeRO-{stage}",
            "when": row["when"],
            "collective": f"{row['times']} {row['kind']}",
            "MB": f"{row['bytes'] / 1e6:.3f}",
        }
        for stage, rows in figures["collectives"].items()
        for row in rows
    ]
    print_table(f"{where}: what an update of {args.micro_batches} micro-batches sends", sent)
    for stage, found in figures["lines"].items():
        for kind in ("waits", "uploads", "added", "step"):
            for line, number in list(found[kind].items())[:MAX_LINES]:
                print(f"  ZeRO-{stage}, {kind}: {number} x {line}")
    shown = [
        {
            "": f"ZeRO-{row['stage']}",
            "tokens": f"{row['tokens']:,}",
            "rows x lengths": row["shape"],
            "padding": f"{row['padding']:.1%}",
            "kernels": f"{row['kernels']:,}",
            "GB": f"{row['gigabytes']:.1f}",
            "TFLOP": f"{row['teraflops']:.2f}",
        }
        for row in figures["updates"]
    ]
    print_table(f"{where}: an update of one micro-batch (counted without a GPU)", shown)
    row = figures["updates"][-1]
    most = [
        {
            "operator": found["operator"],
            "kernels": f"{found['kernels']:.0f}",
            "GB": f"{found['gigabytes']:,.1f}",
            "TFLOP": f"{found['teraflops']:,.2f}",
        }
        for found in row["operators"][: 2 * MAX_LINES]
    ]
    print_table(f"ZeRO-{row['stage']}, {row['tokens']:,} tokens: the operators that move most bytes", most)


def _write(args: argparse.Namespace, figures: Row) -> None:
    if str(args.json) == "-":
        print(json.dumps(figures, indent=1))
    elif args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    args.json = None  # already written, in a form of its own
    settings = {
        n: getattr(args, n)
        for n in ("preset", "layers", "vocab", "ranks", "rank", "micro_batches", "offload", "kernels")
    }
    counted = [
        {"part": "counts", "preset": args.preset, "ranks": args.ranks, "stage": int(stage), **figures["kernels"]}
        | {key: found[key] for key in ("added", "added_later", "step", "waits")}
        | _targets(int(stage), offload=args.offload)
        for stage, found in figures["stages"].items()
    ]
    updates = [
        {"part": "updates", "preset": args.preset, "ranks": args.ranks}
        | {key: value for key, value in row.items() if key != "operators"}
        for row in figures["updates"]
    ]
    record(
        args,
        "device_budget",
        counted + updates,
        {"machine": machine()},
        settings=settings,
        name=f"{args.preset}-{args.ranks}{'-offload' * args.offload}{'-plain' * (args.kernels == 'plain')}",
    )


def _targets(stage: int, *, offload: bool) -> Row:
    """Targets for a row of counts; with offload only the waits have one."""
    if offload:
        return {"waits_target": WAITS_TARGET_OFFLOADED} if stage == 2 else {}
    return {f"{key}_target": value for key, value in TARGETS[stage].items()}


if __name__ == "__main__":
    run_main(main)
