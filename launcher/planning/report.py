"""A plan as text and as JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.planning.alternatives import advice, alternatives, other_numbers
from launcher.planning.costs.latency import LAUNCH, round_trip
from launcher.planning.costs.memory import usable
from launcher.planning.costs.model_states import FLOAT
from launcher.planning.estimate import Estimate, Planner
from launcher.planning.phases import planned_phases
from model.parameters import by_part

GIB = 1 << 30
Row = tuple[int, Estimate | None]

ASSUMPTIONS = (
    "activations: fused attention; 1 GiB outside torch's allocator and 5 % of the rest are left free",
    "time: {mfu:.0%} of {peak:.4g} TFLOP/s while a rank computes; evaluation and waiting for data left out",
    "launches of kernels: {launch:.0f} us each, counted without a GPU; a collective's round trip: {trip:.0f} us",
    "communication: rings over all ranks, {intra:.4g} GB/s of each GPU within a node and {inter:.4g} GB/s of each node",
    "checkpoints: {storage:.4g} GB/s written and read by all ranks together",
    "failures: exponential, {mtbf}; a restart takes {restart:g} minutes and reads the checkpoint",
    "energy: GPUs at {watts:g} W, nothing else",
)


def text(
    planner: Planner, estimate: Estimate, rows: Sequence[Row], *, changed: Mapping[str, Any], written: str | None
) -> str:
    """Lines for people.

    Args:
        planner: of the run.
        estimate: of the cluster that was asked for.
        rows: of other numbers of GPUs.
        changed: what was chosen otherwise than configured, by dotted keys.
        written: the file that has it.
    """
    blocks = [
        _advice_lines(planner, estimate, changed),
        _model_lines(planner, estimate),
        _memory_lines(planner, estimate),
        _run_lines(planner, estimate),
        *([_phase_lines(planner, estimate)] if planner.config.phases else []),
        _other_lines(planner, estimate),
        *([_table_lines(rows)] if rows else []),
        ["assumed", *(f"  {line}" for line in assumptions(planner, estimate))],
    ]
    if written is not None:
        blocks.append([f"written to {written}"])
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks)


def assumptions(planner: Planner, estimate: Estimate) -> list[str]:
    """What the figures rest on."""
    cluster = estimate.cluster
    mtbf = f"one in {cluster.gpu_mtbf:g} hours of a GPU" if cluster.gpu_mtbf else ""
    mtbf = mtbf or f"one in {cluster.node_mtbf:g} hours of a node"
    values = {
        "mtbf": mtbf,
        "restart": cluster.restart / 60,
        "watts": planner.prices.watts,
        "mfu": cluster.mfu,
        "launch": 1e6 * LAUNCH,
        "trip": 1e6 * round_trip(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node),
        "peak": cluster.peak_flops / 1e12,
        "intra": cluster.intra_bandwidth / 1e9,
        "inter": cluster.inter_bandwidth / 1e9,
        "storage": cluster.storage_bandwidth / 1e9,
    }
    lines = [line.format(**values) for line in ASSUMPTIONS]
    lines.insert(
        1,
        f"batches: sentences of {planner.corpus.source_length:.3g} and {planner.corpus.target_length:.3g} tokens, "
        f"{planner.prices.padding:.0%} padding",
    )
    return [*planner.corpus.assumptions, *lines]


def tree(planner: Planner, estimate: Estimate, rows: Sequence[Row]) -> dict[str, Any]:
    """For machines: bytes, seconds, FLOPs."""
    setting, shape = estimate.memory.setting, planner.shape(estimate.micro_batches)
    found = advice(planner, estimate)
    return {
        "precision": planner.precision,
        "parameters": by_part(planner.model.parameters),
        "flops_per_target_token": {part: n / shape.target_tokens for part, n in planner.flops(setting, shape).items()},
        "settings": [dataclasses.asdict(alternative) for alternative in alternatives(planner, estimate)],
        "chosen": _estimate_tree(estimate),
        "advice": {name: _estimate_tree(getattr(found, name)) for name in ("cheapest", "fastest")},
        "other_numbers": [
            {"gpus": n, "micro_batches": None if cut is None else dataclasses.asdict(cut)}
            for n, cut in other_numbers(planner, estimate)
        ],
        "table": [{"gpus": n, "plan": None if e is None else _estimate_tree(e)} for n, e in rows],
        "phases": [dataclasses.asdict(phase) for phase in planned_phases(planner, estimate)],
        "assumptions": assumptions(planner, estimate),
    }


def _estimate_tree(estimate: Estimate) -> dict[str, Any]:
    tree = dataclasses.asdict(estimate)
    tree["cluster"]["num_gpus"] = estimate.cluster.num_gpus
    tree["cluster"]["usable_gpu_memory"] = usable(estimate.cluster.gpu_memory)
    return tree


def _advice_lines(planner: Planner, estimate: Estimate, changed: Mapping[str, Any]) -> list[str]:
    """What to do, in a line, and what to write for it."""
    found = advice(planner, estimate)
    line = f"advice: {_plan(estimate)} (fits)"
    for name, one in (("fewest GPU hours", found.cheapest), ("fastest", found.fastest)):
        line += f"; {name}: {'the same' if one.cluster.num_gpus == estimate.cluster.num_gpus else _plan(one)}"
    settings = " ".join(f"{key}={_yaml(value)}" for key, value in changed.items())
    return [f"{line}; estimated", *([f"change: {settings}"] if settings else [])]


def _plan(estimate: Estimate) -> str:
    return (
        f"{estimate.memory.setting} on {estimate.cluster.num_gpus:,} GPUs, {_time(86_400 * estimate.days)}, "
        f"{estimate.gpu_hours:,.0f} GPU hours"
    )


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model_lines(planner: Planner, estimate: Estimate) -> list[str]:
    shape = planner.shape(estimate.micro_batches)
    flops = planner.flops(estimate.memory.setting, shape)
    sizes = by_part(planner.model.parameters)
    rows = [["model", "parameters", "FLOPs a target token, forward and backward"]]
    for part, size in sizes.items():
        rows.append([f"  {part}", f"{size:,}", _engineering(flops[part] / shape.target_tokens)])
    rows.append(["  together", f"{sum(sizes.values()):,}", _engineering(sum(flops.values()) / shape.target_tokens)])
    return _aligned(rows)


def _memory_lines(planner: Planner, estimate: Estimate) -> list[str]:
    cut = estimate.micro_batches
    head = (
        f"GiB of one of {estimate.cluster.num_gpus} GPUs, {usable(estimate.cluster.gpu_memory) / GIB:.1f} usable; "
        f"{planner.precision}, micro-batches of {cut.source_tokens:,} + {cut.target_tokens:,} tokens"
    )
    names = ["weights", "gradients", "optimizer", "activations", "output", "buckets", "copy", "step", "peak"]
    rows = [["  setting", *names, "at", "host", "fits", "largest", "GB sent", "an update"]]
    for other in alternatives(planner, estimate):
        memory = other.memory
        mark = "->" if memory.setting == estimate.memory.setting else "  "
        values = [f"{getattr(memory, name) / GIB:.2f}" for name in names]
        values += [memory.moment, f"{memory.host / GIB:.2f}", "yes" if other.fits else "no", f"{other.largest:,}"]
        rows.append([f"{mark}{memory.setting}", *values, f"{other.step.sent / 1e9:.3g}", _time(other.step.seconds)])
    foot = "largest: target tokens of the largest micro-batch that fits; GB sent: by each rank for an update"
    return [head, *_aligned(rows), foot]


def _other_lines(planner: Planner, estimate: Estimate) -> list[str]:
    rows = [["other numbers of GPUs", "K", "slots", "source", "target", "idle", "updates"]]
    for number, cut in other_numbers(planner, estimate):
        if cut is None:
            rows.append([f"  {number:,}", *[""] * 5, "does not fit"])
            continue
        budgets = f"{cut.source_tokens:,}", f"{cut.target_tokens:,}"
        same = "the same" if cut.is_same else "cut otherwise"
        rows.append([f"  {number:,}", f"{cut.number:,}", str(cut.slots), *budgets, f"{cut.idle:.0%}", same])
    return _aligned(rows)


def _run_lines(planner: Planner, estimate: Estimate) -> list[str]:
    step, saving, cut = estimate.step, estimate.saving, estimate.micro_batches
    kept = "as configured: the same updates" if cut.is_same else "other than configured: from the next epoch on"
    stream = planner.config.stream
    configured = stream.micro_batches * stream.target_tokens
    larger = ", larger: each rank must hold the longest pair" if cut.is_larger else ""
    rows = [
        ["chosen", f"{estimate.memory.setting} on {estimate.cluster.num_gpus} GPUs"],
        [
            "  update",
            f"K = {cut.number} micro-batches ({kept}), {cut.slots} for each rank, {cut.idle:.0%} of slots idle",
        ],
        ["", f"{cut.update_tokens:,} target tokens of budget, configured {configured:,}{larger}"],
        [
            "  step",
            f"{_time(step.seconds)}: {_time(step.compute)} computing, {_time(step.launching)} launching kernels "
            f"(the longer counts), {_time(step.communication + step.latency)} communicating, "
            f"{_time(step.offload)} on the host; {step.sent / 1e9:.3g} GB sent by each rank",
        ],
        ["  speed", f"{estimate.tokens_per_second:,.0f} target tokens a second"],
        [
            "  checkpoint",
            f"{saving.bytes / 1e9:.3g} GB ({2 * FLOAT + FLOAT} bytes a parameter), {_time(saving.write)} to write, "
            f"{_time(saving.stop)} standing still",
        ],
        [
            "  interval",
            f"{saving.updates:,} updates, {_time(saving.updates * step.seconds)} "
            f"(Daly {_time(saving.interval)}, Young {_time(saving.young)}; a failure each {_time(saving.mtbf)})",
        ],
        ["  goodput", f"{saving.goodput:.2%}"],
        ["  run", f"{estimate.updates:,.0f} updates, {estimate.days:.3g} days, {estimate.gpu_hours:,.0f} GPU hours"],
    ]
    money = [f"{estimate.energy:,.0f} kWh"]
    if estimate.energy_cost is not None:
        money.append(f"{estimate.energy_cost:,.2f} for energy")
    if estimate.cost is not None:
        money.append(f"{estimate.cost:,.2f} for GPUs")
    return _aligned([*rows, ["  cost", ", ".join(money)]], right=False)


def _phase_lines(planner: Planner, estimate: Estimate) -> list[str]:
    rows = [["phases", "from update", "updates", "until", "data"]]
    for phase in planned_phases(planner, estimate):
        first = "?" if phase.first is None else f"{phase.first + 1:,}"
        updates = "?" if phase.updates is None else f"{phase.updates:,}"
        rows.append([f"  {phase.name}", first, updates, phase.until, ", ".join(phase.datasets)])
    return _aligned(rows, right=False)


def _table_lines(rows: Sequence[Row]) -> list[str]:
    names = ["GPUs", "setting", "K", "slots", "tokens", "peak GiB", "GB sent", "step", "tokens/s", "days", "GPU hours"]
    lines = [[*names, "kWh", "cost", "save every", "goodput"]]
    for number, e in rows:
        if e is None:
            lines.append([f"{number:,}", "does not fit"] + [""] * (len(names) + 2))
            continue
        cut = e.micro_batches
        lines.append(
            [
                f"{e.cluster.num_gpus:,}",
                str(e.memory.setting),
                f"{cut.number:,}{'' if cut.is_same else '+' if cut.is_larger else '*'}",
                str(cut.slots),
                f"{cut.target_tokens:,}",
                f"{e.memory.peak / GIB:.1f}",
                f"{e.step.sent / 1e9:.3g}",
                _time(e.step.seconds),
                f"{e.tokens_per_second:,.0f}",
                f"{e.days:.3g}",
                f"{e.gpu_hours:,.0f}",
                f"{e.energy:,.0f}",
                "" if e.cost is None else f"{e.cost:,.0f}",
                f"{e.saving.updates:,}",
                f"{e.saving.goodput:.1%}",
            ]
        )
    return [
        *_aligned(lines),
        "* an update of the same tokens, cut otherwise than configured",
        "+ a larger update than configured: the same tokens in fewer updates, which is another training",
    ]


def _aligned(rows: Sequence[Sequence[str]], *, right: bool = True) -> list[str]:
    """Columns as wide as their widest cell, the first to the left."""
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


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "never"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"
