"""A rate that is shown is one."""

import time

import pytest

from configs.process.progress import Progress


@pytest.mark.parametrize(
    ("total", "before", "done", "seconds", "said"),
    [
        (None, 0, 11, 30.0, "translating: 11 lines, 0.37 lines/s"),
        (None, 0, 1, 30_000.0, "translating: 1 lines, 0.000033 lines/s"),
        (None, 0, 95, 10.0, "translating: 95 lines, 9.5 lines/s"),
        (None, 0, 123_456, 10.0, "translating: 123,456 lines, 12,346 lines/s"),
        (None, 0, 0, 10.0, "translating: 0 lines"),
        (22, 0, 11, 30.0, "translating: 11 of 22 lines (50%), 0.37 lines/s, 00:30 left"),
        (22, 11, 0, 30.0, "translating: 11 of 22 lines (50%)"),
        (22, 11, 5, 10.0, "translating: 16 of 22 lines (73%), 0.5 lines/s, 00:12 left"),
    ],
)
def test_the_rate(
    total: int | None,
    before: int,
    done: int,
    seconds: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("translating", total, before, unit="lines") as shown:
        now[0] += seconds
        shown.advance(done)
    assert capsys.readouterr().err == f"{said}\n"


def test_what_is_reached_counts_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("translating", 10, unit="lines") as shown:
        shown.advance(6)
        for number in (4, 6, 8):
            now[0] += 10
            shown.reach(number)
    assert capsys.readouterr().err == "translating: 8 of 10 lines (80%), 0.27 lines/s, 00:07 left\n"
