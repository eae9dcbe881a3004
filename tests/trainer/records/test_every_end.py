"""However a run ends, its figures have every update, and its trackers get all of them and are told how it ended."""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from configs.components import Tracker, component
from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer import loop, main
from trainer.runs.layout import STATUS_FILE
from trainer.runs.status import read_status

SETTINGS = {
    "early-stopping": ["training.early_stopping={metric: nll, patience: 1, min_delta: 100}"],
    "epochs": ["training.max_epochs=1"],
    "minutes": ["training.max_minutes=60"],
    "not-finite": ["optimizer.lr=1e30", "training.max_skipped_in_a_row=2", "training.log_every=1"],
}
SHARED = [
    "training.log_every=5", "training.max_updates=1000", "evaluation.every_updates=3", "evaluation.max_pairs=2",
    "training.tensorboard=false", "trackers=[telling]", "name=told",
]  # fmt: skip
ERRORS = {"refused": UserError("no"), "interrupt": KeyboardInterrupt(), "another-rank": RuntimeError("no")}
OUTCOMES = {
    **dict.fromkeys(("early-stopping", "epochs", "minutes"), (0, "finished")),
    "stopped": (75, "stopped"),
    "refused": (2, "refused"),
    **dict.fromkeys(("not-finite", "interrupt", "another-rank"), (1, "failed")),
}
LAST = 7
"""Updates before somebody or something ends it."""


def run_with_a_tracker(end: str) -> tuple[int, list[Any]]:
    """As a rank: the exit code of the command, and what a slow tracker got."""
    told: list[Any] = []

    class Writer:
        def write(self, step: int, figures: Mapping[str, float], samples: Any = ()) -> None:
            if "train/loss" in figures:
                time.sleep(0.05)
                told.append(step)

        def event(self, step: int, figures: Mapping[str, Any]) -> None:
            if figures["event"] == "end":
                told.append((figures["exit_code"], figures["outcome"]))

        def close(self) -> None:
            told.append("close")

    @component("tracker", "telling")
    class Telling(Tracker):
        """Tells."""

        def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Any:
            return Writer()

    def train_on(self: Any, update: Any) -> None:
        if self.run.state.step == LAST and end == "stopped":
            os.kill(os.getpid(), signal.SIGTERM)
        if self.run.state.step == LAST and end == "minutes":
            self.run.state.seconds += 3600
        if self.run.state.step == LAST and end in ERRORS and (end != "another-rank" or os.environ["RANK"] == "1"):
            raise ERRORS[end]
        as_it_is(self, update)

    as_it_is, loop.Trainer._train_on = loop.Trainer._train_on, train_on  # type: ignore[method-assign]
    try:
        code = main.main(["small.yaml", *SHARED, *SETTINGS.get(end, [])])
    except KeyboardInterrupt:
        code = 1
    return code, told


@pytest.mark.parametrize("end", OUTCOMES)
def test_figures_and_trackers_have_all_at_every_end(end: str, forked: Forked, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    code, told = forked.ranks(1 + (end == "another-rank"), run_with_a_tracker, end, cwd=place, meet=False)[0]
    lines = read_metrics(place / "runs" / "told")
    assert lines
    assert (code, told) == (OUTCOMES[end][0], [*(line["step"] for line in lines), OUTCOMES[end], "close"])
    status = read_status(place / "runs" / "told" / STATUS_FILE)
    if code in (0, 75):
        assert status is not None
        assert sum(line["updates"] for line in lines) == status.step == lines[-1]["step"]
        assert lines[-1]["step"] % 5, "it ends between two log lines"
