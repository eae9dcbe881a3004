"""Section on the estimated cost of an update on a GPU."""

from benchmarks.common.results import Result, Row
from benchmarks.report.section import Section
from benchmarks.report.tables import Choice, Results, Table, column, pivoted

COUNTS = ("forward", "backward", "added", "added_later", "step", "waits")
TIMES = ("kernels", "host_ms", "device_ms", "mfu", "limit")


def before_and_after(part: str, *, offload: bool) -> Choice:
    """The rows of the oldest ('before') and newest ('after') result of each preset, as given in column `when`."""

    def choose(results: Results) -> tuple[list[Result], list[Row]]:
        found: dict[str, list[Result]] = {}
        for result in results:
            if result.question == "device_budget" and bool(result.settings.get("offload")) == offload:
                found.setdefault(result.settings["preset"], []).append(result)
        chosen, rows = [], []
        for preset in sorted(found):
            ends = {"before": found[preset][0], "after": found[preset][-1]}
            for when, result in ends.items():
                chosen += [result] if result not in chosen else []
                rows += [
                    {**row, "when": when, "row": f"{preset} {row.get('tokens')} {row['stage']}"}
                    for row in result.part(part)
                ]
        return chosen, rows

    return choose


def _counts(*, offload: bool) -> Choice:
    return pivoted(before_and_after("counts", offload=offload), over="when", by="row", keys=COUNTS)


def _times(*, offload: bool) -> Choice:
    return pivoted(before_and_after("roofline", offload=offload), over="when", by="row", keys=TIMES)


PRESET, STAGE = column("preset", "model"), column("stage", "ZeRO stage")
BUDGET = Section(
    title="What would an update cost an H100?",
    lead="Nothing here was measured on a GPU. Kernels and host waits are counted on a pseudo device: one rank of "
    "several runs the trainer's loop and DeepSpeed's engine in bf16 with clipping (`python -m "
    "benchmarks.device.budget`). 'Before' is the engine before its steps were fused; 'after' also has the GPU kernels "
    "(`engine.kernels`).",
    tables=(
        Table(
            lead="Kernels of an update of two micro-batches: of the model, added by DeepSpeed to the first and to a "
            "later micro-batch, and of the optimizer's step; and how often the host waits for the device.",
            choice=_counts(offload=False),
            columns=(
                PRESET,
                STAGE,
                column("forward of after", "forward"),
                column("backward of after", "backward"),
                column("added of before", "added before"),
                column("added of after", "after"),
                column("added_later of before", "to a later one before"),
                column("added_later of after", "after"),
                column("added_target", "target, at most"),
                column("step of before", "step before"),
                column("step of after", "after"),
                column("step_target", "target, at most"),
                column("waits of before", "waits before"),
                column("waits of after", "after"),
                column("waits_target", "target, at most"),
            ),
        ),
        Table(
            lead="Roofline estimate of an update with one micro-batch per rank: the larger of the host's launch time "
            "and the device's memory and compute time, plus the waits. Communication between GPUs is not included.",
            choice=_times(offload=False),
            columns=(
                PRESET,
                column("tokens", "tokens per rank"),
                STAGE,
                column("kernels of before", "kernels before"),
                column("kernels of after", "after"),
                column("host_ms of before", "host ms before", ".1f"),
                column("host_ms of after", "after", ".1f"),
                column("device_ms of before", "device ms before", ".1f"),
                column("device_ms of after", "after", ".1f"),
                column("mfu of before", "MFU before", ".1%"),
                column("limit of before", "limited by"),
                column("mfu of after", "MFU after", ".1%"),
                column("limit of after", "limited by"),
            ),
        ),
        Table(
            lead="The same counts with the optimizer on the host:",
            choice=_counts(offload=True),
            columns=(
                PRESET,
                STAGE,
                column("added of after", "added"),
                column("added_later of after", "to a later one"),
                column("step of after", "step"),
                column("waits of after", "waits"),
                column("waits_target", "target, at most"),
            ),
        ),
    ),
)
