"""Tables, ratios and verdicts for the figures of `training`."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.common.measure import median, print_table, spread
from benchmarks.device.work import Figures

TARGET_MFU = {"wmt_base": 0.35, "wmt_big": 0.45}
AGREEMENT, COMPARED_UPDATES = 1e-2, 20
GIB = 1 << 30
FRACTIONS = {"waiting for data": "waiting_for_data", "logging": "logging"}
"""Columns with fractions of the timed updates' time; only zeromt reports them."""


def report(run: str, rounds: Sequence[dict[str, Figures]], *, timed: int, planned: int) -> Figures:
    """Print the figures on one GPU; returns medians, ratios to zeromt, and whether the MFU meets its target.

    Args:
        run: name of a shipped run.
        rounds: for each round, the figures by program.
        timed: number of timed updates in a round.
        planned: peak memory according to `zeromt plan`, in bytes.
    """
    if not rounds or not rounds[0]:
        return {}
    medians = {
        name: {
            key: median(r[name][key] for r in rounds)
            for key, value in first.items()
            if isinstance(value, float | int) and not isinstance(value, bool)
        }
        for name, first in rounds[0].items()
    }
    print_table(
        f"{run}, one GPU: target tokens without padding, {len(rounds)} x {timed} updates",
        [{"program": name, **_cells(found)} for name, found in medians.items()],
    )
    found: Figures = {"medians": medians}
    if "zeromt" not in medians:
        return found
    ratios = {
        name: [r["zeromt"]["tokens_per_second"] / r[name]["tokens_per_second"] for r in rounds]
        for name in medians
        if name != "zeromt"
    }
    for name, values in ratios.items():
        print(f"zeromt over {name}: {spread(values)}")
    found["ratios"] = ratios
    if run in TARGET_MFU:
        found["mfu_target"], found["mfu_holds"] = TARGET_MFU[run], medians["zeromt"]["mfu"] >= TARGET_MFU[run]
        print(f"target MFU {TARGET_MFU[run]:.0%}: {_verdict(found['mfu_holds'])}")
    allocated = medians["zeromt"].get("peak_allocated")
    found["plan_off"] = None if allocated is None else planned / allocated - 1
    off = "" if allocated is None else f" ({found['plan_off']:+.1%})"
    print(f"peak memory: {_gib(allocated)} GiB allocated, {_gib(planned)} planned{off}")
    return found


def print_stages(run: str, found: Mapping[str, Figures], *, num_ranks: int) -> None:
    """Print a table of all ZeRO settings; losses are compared with those of the first setting."""
    print_table(
        f"{run}, ranks: {num_ranks}; off: largest loss difference to {next(iter(found))} in {COMPARED_UPDATES} updates",
        [
            {
                "setting": name,
                **_cells(figures),
                "planned": _gib(figures["planned_peak"]),
                "off": f"{figures['worst_loss']:.1e}",
                f"within {AGREEMENT:g}": _verdict(figures["agrees"]),
            }
            for name, figures in found.items()
        ],
    )


def worst_difference(losses: Sequence[float], others: Sequence[float]) -> float:
    """The largest relative difference of the first losses; NaN if a loss is NaN."""
    mine, reference = (np.array(found[:COMPARED_UPDATES]) for found in (losses, others))
    return float(np.max(np.abs(mine - reference) / np.abs(reference)))


def _cells(figures: Figures) -> dict[str, str]:
    """The cells of a table row."""
    return {
        "tokens/s": f"{figures['tokens_per_second']:,.0f}",
        "s/update": f"{figures['seconds_per_update']:.4f}",
        "padding": f"{figures['padding']:.1%}",
        "MFU": f"{figures['mfu']:.1%}",
        **{name: _fraction(figures.get(key)) for name, key in FRACTIONS.items()},
        "GiB allocated": _gib(figures.get("peak_allocated")),
        "reserved": _gib(figures.get("peak_reserved")),
    }


def _fraction(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"


def _gib(size: float | None) -> str:
    return "?" if size is None else f"{size / GIB:.2f}"


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does NOT hold"
