"""The learning rate at chosen updates."""

import math

import pytest

from configs.components import make


@pytest.mark.parametrize(
    ("kind", "warmup", "floor", "update", "expected"),
    [
        ("inverse_sqrt", 100, 0.0, 1, 0.01),
        ("inverse_sqrt", 100, 0.0, 100, 1.0),
        ("inverse_sqrt", 100, 0.0, 400, 0.5),
        ("inverse_sqrt", 100, 0.6, 400, 0.6),
        ("inverse_sqrt", 0, 0.0, 4, 0.5),
        ("cosine", 0, 0.0, 1, 1.0),
        ("cosine", 100, 0.0, 550, 0.5),
        ("cosine", 100, 0.2, 1000, 0.2),
        ("linear", 100, 0.0, 550, 0.5),
        ("linear", 100, 0.0, 1000, 0.0),
        ("linear", 100, 0.0, 2000, 0.0),
        ("constant", 0, 0.0, 1, 1.0),
        ("constant", 10, 0.0, 5, 0.5),
        ("constant", 10, 0.0, 10**6, 1.0),
    ],
)
def test_rate(kind: str, warmup: int, floor: float, update: int, expected: float) -> None:
    fields = {"min_lr_ratio": floor} if kind != "constant" else {}
    schedule = make("schedule", kind, warmup_updates=warmup, **fields)
    assert schedule.rate(update, peak=1.0, last=1000) == pytest.approx(expected, abs=1e-12)


def test_vaswani_is_inverse_sqrt_with_its_own_peak() -> None:
    width, warmup = 512, 4000
    schedule = make("schedule", "inverse_sqrt", warmup_updates=warmup)
    for update in (1, 100, 4000, 10_000, 100_000):
        paper = width**-0.5 * min(update**-0.5, update * warmup**-1.5)
        ours = schedule.rate(update, peak=(width * warmup) ** -0.5, last=10**6)
        assert math.isclose(paper, ours, rel_tol=1e-12)
