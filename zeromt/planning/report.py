"""A plan as text and as JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs.process.text import yaml_scalar
from model.parameters import by_part
from zeromt.planning.alternatives import advice, alternatives, other_numbers
from zeromt.planning.costs.communication import round_trip
from zeromt.planning.costs.memory import usable_memory
from zeromt.planning.estimate import Estimate, Planner
from zeromt.planning.hardware import PUBLISHED_MFU, Cluster


@dataclass(kw_only=True, slots=True, frozen=True)
class PlannedPhase:
    """A phase in a plan."""

    name: str
    until: str
    """When it ends, in words."""
    datasets: tuple[str, ...]
    first: int | None
    """Number of updates before it; None after a phase whose length is not known."""
    updates: int | None
    """Number of its updates; None if it ends at a plateau, or if its datasets are not prepared."""


def planned_phases(planner: Planner, estimate: Estimate) -> list[PlannedPhase]:
    """The phases of a run; empty if it has none.

    Args:
        planner: the run's planner.
        estimate: the plan, which gives the tokens of an update.
    """
    config, first = planner.config, 0 if planner.config.phases else None
    phases = []
    for phase, stream in zip(config.phases, config.streams, strict=False):
        paths = tuple(source.path for source in stream.datasets) or (config.prepare.output,)
        left = None if first is None else max(0, round(estimate.updates) - first)
        updates, until = left, "the end of the run"
        if phase.until is not None:
            until, updates = phase.until.describe(), phase.until.updates
            tokens = [planner.corpus.dataset_tokens.get(path) for path in paths]
            if phase.until.passes is not None and None not in tokens:
                updates = round(phase.until.passes * sum(n or 0 for n in tokens) / estimate.step.tokens)
        if updates is not None and left is not None:
            updates = min(updates, left)
        phases.append(PlannedPhase(name=phase.name, until=until, datasets=paths, first=first, updates=updates))
        first = None if first is None or updates is None else first + updates
    return phases


GIB = 1 << 30
Row = tuple[int, Estimate | None]

ASSUMPTIONS = (
    "memory: fused attention; 1 GiB outside torch's allocator and 5 % of the rest stay free",
    "time: an MFU of {mfu:.3g}, {whose}, of {peak:.4g} TFLOP/s while a rank computes; without evaluation and waiting "
    "for data",
    "communication: rings over all ranks, {intra:.4g} GB/s per GPU within a node and {inter:.4g} GB/s per node; "
    "a collective's round trip: {trip:.0f} us",
    "checkpoints: all ranks together read and write {storage:.4g} GB/s",
    "failures: exponentially distributed, {mtbf}; a restart takes {restart:g} minutes and reads the checkpoint",
    "energy: {watts:g} W per GPU, without the rest of the machine",
)


def text(
    planner: Planner, estimate: Estimate, rows: Sequence[Row], *, changed: Mapping[str, Any], written: str | None
) -> str:
    """The report as text.

    Args:
        planner: the run's planner.
        estimate: the plan for the given cluster.
        rows: plans for other numbers of GPUs.
        changed: fields that the plan sets differently from the configuration, by dotted keys.
        written: the file that the changed configuration is written to.
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
    """The assumptions behind the figures, one line each."""
    cluster = estimate.cluster
    mtbf = f"on average one every {cluster.gpu_mtbf:g} hours per GPU" if cluster.gpu_mtbf else ""
    mtbf = mtbf or f"on average one every {cluster.node_mtbf:g} hours per node"
    values = {
        "mtbf": mtbf,
        "restart": cluster.restart / 60,
        "watts": planner.prices.watts,
        "mfu": cluster.mfu,
        "whose": whose_mfu(cluster),
        "trip": 1e6 * round_trip(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node),
        "peak": cluster.peak_flops / 1e12,
        "intra": cluster.intra_bandwidth / 1e9,
        "inter": cluster.inter_bandwidth / 1e9,
        "storage": cluster.storage_bandwidth / 1e9,
    }
    lines = [line.format(**values) for line in ASSUMPTIONS]
    lines.insert(
        1,
        f"micro-batches: sentences of {planner.corpus.source_length:.3g} source and "
        f"{planner.corpus.target_length:.3g} target tokens, {planner.prices.padding:.0%} padding",
    )
    if not cluster.is_mfu_given:
        lines.insert(3, f"published MFU of Transformer big, as a guide: {PUBLISHED_MFU}")
    return [*planner.corpus.assumptions, *lines]


def tree(planner: Planner, estimate: Estimate, rows: Sequence[Row]) -> dict[str, Any]:
    """The report for `--json`, in bytes, seconds and FLOPs."""
    setting, shape = estimate.memory.setting, planner.shape(estimate.micro_batches)
    advised = advice(planner, estimate)
    return {
        "precision": planner.precision,
        "parameters": by_part(planner.model.parameters),
        "flops_per_target_token": {part: n / shape.target_tokens for part, n in planner.flops(setting, shape).items()},
        "settings": [dataclasses.asdict(alternative) for alternative in alternatives(planner, estimate)],
        "chosen": _estimate_tree(estimate),
        "advice": {name: _estimate_tree(getattr(advised, name)) for name in ("cheapest", "fastest")},
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
    tree["cluster"]["usable_gpu_memory"] = usable_memory(estimate.cluster.gpu_memory)
    return tree


def _advice_lines(planner: Planner, estimate: Estimate, changed: Mapping[str, Any]) -> list[str]:
    """A line of advice, one with the settings to change, and one that says on what MFU times rest."""
    advised = advice(planner, estimate)
    line = f"advice: {_plan(estimate)} (fits)"
    for name, one in (("fewest GPU hours", advised.cheapest), ("fastest", advised.fastest)):
        line += f"; {name}: {'the same' if one.cluster.num_gpus == estimate.cluster.num_gpus else _plan(one)}"
    settings = " ".join(f"{key}={yaml_scalar(value)}" for key, value in changed.items())
    mfu = f"times: at an MFU of {estimate.cluster.mfu:.3g}, {whose_mfu(estimate.cluster)}"
    return [f"{line}; estimated", *([f"change: {settings}"] if settings else []), mfu]


def whose_mfu(cluster: Cluster) -> str:
    """Whose the MFU is on which times rest, in words."""
    return "as given (--mfu)" if cluster.is_mfu_given else "a guess and yours to give (--mfu)"


def _plan(estimate: Estimate) -> str:
    return (
        f"{estimate.memory.setting} on {estimate.cluster.num_gpus:,} GPUs, {duration(86_400 * estimate.days)}, "
        f"{estimate.gpu_hours:,.0f} GPU hours"
    )


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
    for other in alternatives(planner, estimate):
        memory = other.memory
        mark = "->" if memory.setting == estimate.memory.setting else "  "
        values = [f"{getattr(memory, name) / GIB:.2f}" for name in names]
        values += [memory.moment, f"{memory.host / GIB:.2f}", "yes" if other.fits else "no", f"{other.largest:,}"]
        rows.append([f"{mark}{memory.setting}", *values, f"{other.step.sent / 1e9:.3g}", duration(other.step.seconds)])
    foot = "largest: target tokens of the largest micro-batch that fits; GB sent: per rank and update"
    return [head, *_aligned(rows), foot]


def _other_lines(planner: Planner, estimate: Estimate) -> list[str]:
    rows = [["other numbers of GPUs", "K", "slots", "source", "target", "idle", "updates"]]
    for number, cut in other_numbers(planner, estimate):
        if cut is None:
            rows.append([f"  {number:,}", *[""] * 5, "does not fit"])
            continue
        budgets = f"{cut.source_tokens:,}", f"{cut.target_tokens:,}"
        same = "the same" if cut.is_same else "split differently"
        rows.append([f"  {number:,}", f"{cut.number:,}", str(cut.slots), *budgets, f"{cut.idle:.0%}", same])
    return _aligned(rows)


def _run_lines(planner: Planner, estimate: Estimate) -> list[str]:
    step, saving, cut = estimate.step, estimate.saving, estimate.micro_batches
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
            f"{saving.bytes / 1e9:.3g} GB ({saving.bytes / planner.model.num_parameters:.0f} bytes per parameter), "
            f"{duration(saving.write)} to write; training pauses for {duration(saving.stop)}",
        ],
        [
            "  interval",
            f"{saving.updates:,} updates, {duration(saving.updates * step.seconds)} "
            f"(Daly {duration(saving.interval)}, Young {duration(saving.young)}; a failure every "
            f"{duration(saving.mtbf)})",
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
                duration(e.step.seconds),
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
        "* an update has the same number of tokens as configured, but is split differently",
        "+ an update is larger than configured: the same tokens in fewer updates, which may learn differently",
    ]


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
