"""Fraction done and time left, by hand."""

import pytest

from configs import load_run
from trainer.checkpoint.state import TrainerState
from trainer.terminal.forecast import Forecast

HOUR = 3600.0


@pytest.mark.parametrize(
    ("settings", "epoch", "number", "fraction", "left", "share"),
    [
        # 60 of 100 updates, 50 of them in this start's 500 s.
        (["max_updates=100"], 0, 59, 0.6, 400.0, "60 of 100 updates"),
        # 700 s of 1,000: nearer than the updates.
        (["max_updates=100", "max_minutes=16.6666666"], 0, 59, 0.7, 300.0, "60 updates, 11:40 of 16:39"),
        (["max_updates=100", "max_minutes=1000"], 0, 59, 0.6, 400.0, "60 of 100 updates"),
        (["max_updates=100", "max_target_tokens=8000"], 0, 59, 0.75, 200.0, "60 updates, 6,000 of 8,000 target tokens"),
        # No epoch is over: 75 updates in each, as estimated, and 90 to go.
        (["max_updates=10000", "max_epochs=2"], 0, 59, 60 / 150, 900.0, "60 updates, 0.8 of 2 epochs"),
        # Two epochs are over, with 25 updates each, whatever was estimated; 15 to go.
        (["max_updates=10000", "max_epochs=3"], 2, 9, 60 / 75, 150.0, "60 updates, 2.4 of 3 epochs"),
        (["max_updates=10000", "max_epochs=2"], 2, 9, 1.0, 0.0, "60 updates, 2.4 of 2 epochs"),
    ],
)
def test_outlook(settings: list[str], epoch: int, number: int, fraction: float, left: float, share: str) -> None:
    config = load_run("debug", [f"training.{setting}" for setting in settings])
    state = TrainerState(step=10, seconds=200.0)
    forecast = Forecast(config, state, updates_an_epoch=75)
    assert forecast.look(0, 9).seconds_left is None
    state.step, state.seconds, state.target_tokens = 60, 700.0, 6000
    outlook = forecast.look(epoch, number)
    assert outlook.share == share
    assert (outlook.fraction, outlook.seconds_left) == pytest.approx((fraction, left), rel=1e-6)


def test_counted_from_a_reset() -> None:
    state = TrainerState(step=500, seconds=HOUR, start_step=500, start_seconds=HOUR, start_epoch=3)
    forecast = Forecast(load_run("debug", ["training.max_updates=100", "training.max_epochs=2"]), state)
    state.step, state.seconds = 550, HOUR + 100
    assert str(forecast.look(3, 49)) == "50.0% done  01:40 left"
    assert forecast.look(4, 9).fraction == pytest.approx(1.25 / 2)
