"""The page of a card, from figures as a card gives them."""

import math
from typing import Any

import pytest

from benchmarks.device.report_card.cells import CELLS, PARTS
from benchmarks.device.report_card.page import page
from benchmarks.device.report_card.tables import worst_difference

HERE = {"code": "c1", "commit": "abc", "card": "NVIDIA Example", "toy": False, "cards": 1, "versions": {"torch": "9"}}


def line(cell: str, figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HERE, "cell": cell, "status": "ok", "figures": figures, "seconds": 20, **more}


def kernel(name: str, plain: float, ours: float, *, right: bool = True) -> dict[str, Any]:
    both = {
        f"{who}_{what}": ms for who, ms in (("plain", plain), ("ours", ours)) for what in ("ms", "waited_ms", "mib")
    }
    return {"kernel": name, "off": 0.01, "right": right, "speed_up": plain / ours, **both}


def size(rate: float, *, host: float, device: float) -> dict[str, Any]:
    return {
        "tokens_per_second": rate, "seconds_per_update": 0.04, "padding": 0.1, "flops_per_target_token": 4e8,
        "peak_allocated": 2 << 30, "planned_peak": 3 << 30, "layout": "short", "operators": [],
        "host_seconds": host, "device_seconds": device, "pass_seconds": max(host, device),
    }  # fmt: skip


MACHINE = {
    "doctor": [{"grade": "doubt", "subject": "clock", "said": "it drifts", "mend": "set it"}],
    "driver": "580", "memory": 80, "matmul_flops": 7e14, "listed_flops": 1e15,
}  # fmt: skip
CARD = [
    line("machine", MACHINE),
    line(
        "kernels", {"kernels": [kernel("quick", 2.0, 1.0), kernel("slow", 1.0, 2.0), kernel("off", 2, 1, right=False)]}
    ),
    line("base 16384 plain", size(4e5, host=0.009, device=0.02)),
    line("base 16384 cuda", size(5e5, host=0.02, device=0.02)),
    line("base 3200 plain", size(3e5, host=0.009, device=0.004)),
    line("base 3200 cuda", size(2e5, host=0.01, device=0.004)),
]


def made(*lines: dict[str, Any]) -> str:
    return page(lines, HERE, CELLS, PARTS)


def test_verdicts() -> None:
    text = made(*CARD)
    assert "kernel `quick` earns its place: 2.00 times as fast" in text
    assert "kernel `slow` loses to plain: 0.50 times as fast" in text
    assert "kernel `off` is WRONG" in text
    assert (
        "base at 16,384 tokens: the kernels earn their place, 1.25 times as fast; 20.0% MFU; limited by: device" in text
    )
    assert "base at 3,200 tokens: the kernels lose to plain, 0.67 times as fast; 8.0% MFU; limited by: host" in text
    assert "3.00 (+50.0%)" in text
    assert "doubt: clock: it drifts -> set it" in text
    assert "toy size" not in text


def test_without_the_card_s_rate_the_mfu_is_not_known() -> None:
    assert "? MFU" in made(*CARD[1:])


def test_losses_are_compared_with_those_of_stage_0() -> None:
    def stage(name: str, losses: list[float]) -> dict[str, Any]:
        figures = {"setting": name, "ranks": 8, "waiting_for_data": 0.0, "losses": losses}
        return line(name.replace("-", " "), size(1e5, host=1, device=1) | figures)

    text = made(stage("ZeRO-0", [9.0, 8.0]), stage("ZeRO-1", [9.0, 8.001]), stage("ZeRO-2", [9.0, 7.0]))
    assert "1.2e-04, holds" in text
    assert "1.2e-01, **does not hold**" in text


def test_losses_that_are_not_numbers_do_not_agree() -> None:
    assert worst_difference([2.0, 3.03], [2.0, 3.0]) == pytest.approx(0.01)
    assert math.isnan(worst_difference([2.0, math.nan], [2.0, 3.0]))


def test_what_is_done_stays_and_other_code_is_named() -> None:
    earlier = line("machine", MACHINE, code="c0", commit="old")
    failed = {**HERE, "cell": "machine", "status": "failed", "reason": "gone"}
    other = line("kernels", {"kernels": [kernel("of another card", 2, 1)]}, card="Another")
    text = made(earlier, failed, other)
    assert "1 of" in text
    assert "580" in text
    assert "code: c0, commit old" in text
    assert "of another card" not in text


def test_figures_of_another_form_do_not_end_it() -> None:
    assert "`machine`: cannot be shown, KeyError('doctor')" in made(line("machine", {"card": 1}))
