"""A plan as text and as JSON."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from configs import RunConfig
from configs.process.text import yaml_scalar
from model.parameters import by_part
from zeromt.planning.costs.communication import round_trip
from zeromt.planning.costs.memory import usable_memory
from zeromt.planning.estimate import Estimate, Planner
from zeromt.planning.hardware import PUBLISHED_MFU

GIB = 1 << 30

ASSUMPTIONS = (
    "memory: fused attention; 1 GiB outside torch's allocator and 5 % of the rest stay free",
    "time: an MFU of {mfu:.3g}, {whose}, of {peak:.4g} TFLOP/s while a rank computes; without evaluations, "
    "saves, failures and waiting for data",
    "communication: rings over all ranks, {intra:.4g} GB/s per GPU within a node and {inter:.4g} GB/s per node; "
    "a collective's round trip: {trip:.0f} us",
)


def text(planner: Planner, estimate: Estimate) -> str:
    """The report as text.

    Args:
        planner: the run's planner.
        estimate: the plan for the given cluster.
    """
    blocks = [
        _model_lines(planner, estimate),
        _memory_lines(planner, estimate),
        _run_lines(planner, estimate),
        ["assumed", *(f"  {line}" for line in assumptions(planner, estimate))],
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks)


def assumptions(planner: Planner, estimate: Estimate) -> list[str]:
    """The assumptions behind the figures, one line each."""
    cluster = estimate.cluster
    values = {
        "mfu": cluster.mfu,
        "whose": "as given (--mfu)" if cluster.is_mfu_given else "a guess and yours to give (--mfu)",
        "trip": 1e6 * round_trip(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node),
        "peak": cluster.peak_flops / 1e12,
        "intra": cluster.intra_bandwidth / 1e9,
        "inter": cluster.inter_bandwidth / 1e9,
    }
    lines = [line.format(**values) for line in ASSUMPTIONS]
    lines.insert(
        1,
        f"micro-batches: sentences of {planner.corpus.source_length:.3g} source and "
        f"{planner.corpus.target_length:.3g} target tokens, {planner.padding:.0%} padding",
    )
    if not cluster.is_mfu_given:
        lines.insert(3, f"published MFU of Transformer big, as a guide: {PUBLISHED_MFU}")
    return [*planner.corpus.assumptions, *lines]


def tree(planner: Planner, estimate: Estimate) -> dict[str, Any]:
    """The report for `--json`, in bytes, seconds and FLOPs."""
    setting, shape = estimate.memory.setting, planner.shape(estimate.micro_batches)
    chosen = dataclasses.asdict(estimate)
    chosen["cluster"]["num_gpus"] = estimate.cluster.num_gpus
    chosen["cluster"]["usable_gpu_memory"] = usable_memory(estimate.cluster.gpu_memory)
    return {
        "precision": planner.precision,
        "parameters": by_part(planner.model.parameters),
        "flops_per_target_token": {part: n / shape.target_tokens for part, n in planner.flops(setting, shape).items()},
        "settings": [dataclasses.asdict(option) for option in planner.options(estimate)],
        "chosen": chosen,
        "change": changes(planner.config, estimate),
        "assumptions": assumptions(planner, estimate),
    }


def _model_lines(planner: Planner, estimate: Estimate) -> list[str]:
    shape = planner.shape(estimate.micro_batches)
    flops = planner.flops(estimate.memory.setting, shape)
    sizes = by_part(planner.model.parameters)
    rows = [["model", "parameters", "FLOPs per target token, forward and backward"]]
    for part, size in sizes.items():
        rows.append([f"  {part}", f"{size:,}", _engineering(flops[part] / shape.target_tokens)])
    rows.append(["  total", f"{sum(sizes.values()):,}", _engineering(sum(flops.values()) / shape.target_tokens)])
    if planner.model.frozen:
        rows.append(["  trained", f"{planner.model.num_trained:,}", ""])
    return _aligned(rows)


def _memory_lines(planner: Planner, estimate: Estimate) -> list[str]:
    cut = estimate.micro_batches
    head = (
        f"GiB per GPU of {estimate.cluster.num_gpus}, {usable_memory(estimate.cluster.gpu_memory) / GIB:.1f} usable; "
        f"{planner.precision}, micro-batches of {cut.source_tokens:,} + {cut.target_tokens:,} tokens"
    )
    names = ["weights", "gradients", "optimizer", "activations", "output", "buckets", "copy", "step", "peak"]
    rows = [["  setting", *names, "at", "host", "fits", "largest", "GB sent", "update"]]
    for option in planner.options(estimate):
        memory = option.memory
        mark = "->" if memory.setting == estimate.memory.setting else "  "
        values = [f"{getattr(memory, name) / GIB:.2f}" for name in names]
        values += [memory.moment, f"{memory.host / GIB:.2f}", "yes" if option.fits else "no", f"{option.largest:,}"]
        rows.append(
            [f"{mark}{memory.setting}", *values, f"{option.step.sent / 1e9:.3g}", duration(option.step.seconds)]
        )
    foot = "largest: target tokens of the largest micro-batch that fits; GB sent: per rank and update"
    return [head, *_aligned(rows), foot]


def _run_lines(planner: Planner, estimate: Estimate) -> list[str]:
    step, cut = estimate.step, estimate.micro_batches
    kept = "as configured: the same updates" if cut.is_same else "not as configured: takes effect at the next epoch"
    stream = planner.config.stream
    configured = stream.micro_batches * stream.target_tokens
    larger = "; larger, because each rank's budget must allow the longest pair" if cut.is_larger else ""
    rows = [
        ["chosen", f"{estimate.memory.setting} on {estimate.cluster.num_gpus} GPUs"],
        [
            "  update",
            f"K = {cut.number} micro-batches ({kept}), {cut.slots} per rank, {cut.idle:.0%} of slots idle",
        ],
        ["", f"budget of {cut.update_tokens:,} target tokens (configured: {configured:,}){larger}"],
        [
            "  step",
            f"{duration(step.seconds)}: {duration(step.compute)} computing, "
            f"{duration(step.communication + step.latency)} communicating, "
            f"{duration(step.offload)} for offload; each rank sends {step.sent / 1e9:.3g} GB",
        ],
        ["  speed", f"{estimate.tokens_per_second:,.0f} target tokens per second"],
        [
            "  checkpoint",
            f"{estimate.checkpoint_bytes / 1e9:.3g} GB "
            f"({estimate.checkpoint_bytes / planner.model.num_parameters:.0f} bytes per parameter)",
        ],
        ["  run", f"{estimate.updates:,.0f} updates, {estimate.days:.3g} days, by the MFU assumed below"],
    ]
    if changed := changes(planner.config, estimate):
        rows.append(["  change", " ".join(f"{key}={yaml_scalar(value)}" for key, value in changed.items())])
    return _aligned(rows, right=False)


def changes(config: RunConfig, estimate: Estimate) -> dict[str, Any]:
    """The fields that the plan sets differently from the configuration, with their new values, by dotted keys."""
    setting, micro_batches = estimate.memory.setting, estimate.micro_batches
    engine, stream = config.engine, config.stream
    values = {
        "engine.zero_stage": (engine.zero_stage, setting.stage),
        "engine.offload_optimizer": (engine.offload_optimizer, setting.offload),
        "model.activation_checkpointing": (config.model.activation_checkpointing, setting.checkpointing),
        "stream.micro_batches": (stream.micro_batches, micro_batches.number),
        "stream.source_tokens": (stream.source_tokens, micro_batches.source_tokens),
        "stream.target_tokens": (stream.target_tokens, micro_batches.target_tokens),
    }
    return {key: now for key, (before, now) in values.items() if now != before}


def _aligned(rows: Sequence[Sequence[str]], *, right: bool = True) -> list[str]:
    """Rows of a table, whose columns are as wide as their widest cell; the first is left-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if right and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _engineering(number: float) -> str:
    """1234567 as 1.23 M."""
    for power, unit in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """Seconds in the largest unit of which there is one, such as 1.5 h; `never` if they are infinite."""
    if not math.isfinite(seconds):
        return "never"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"
