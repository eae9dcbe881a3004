"""However a run ends, its figures have every update, and its trackers get all of them and are told how it ended."""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from configs import UserError, load_run
from configs.components import Tracker, component
from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer import loop, main
from trainer.build import build
from trainer.ranks.distributed import World
from trainer.records.metrics import NoMetrics

ENDS = {
    "clock": ["training.max_minutes=60"],
    "early-stopping": ["training.early_stopping={metric: nll, patience: 1, min_delta: 100}"],
    "epochs": ["training.max_epochs=1"],
    "stop": [],
    "updates": ["training.max_updates=7"],
}
SHARED = [
    "training.log_every=5", "training.max_updates=1000", "evaluation.every_updates=3", "evaluation.max_pairs=2",
    "training.tensorboard=false",
]  # fmt: skip
LAST = 7
"""Updates before the clock or someone ends it."""


def run_to_every_end(world: World) -> dict[str, dict[str, Any]]:
    """As a rank: what the trainer has counted when it ends, by how it ends."""
    return {end: run_to_the_end(world, end) for end in ENDS}


def run_to_the_end(world: World, end: str) -> dict[str, Any]:
    config = load_run("small.yaml", [*SHARED, *ENDS[end], f"name={end}"])
    if world.is_main:
        Path(config.folder).mkdir(parents=True)
    world.barrier()
    done = [0]
    built = build(config, world, stop_requested=lambda: end == "stop" and done[0] >= LAST)
    step = built.context.engine.step

    def counted(*args: Any) -> Any:
        done[0] += 1
        if end == "clock" and done[0] == LAST:
            built.context.state.seconds += 3600
        return step(*args)

    built.context.engine.step = counted  # type: ignore[method-assign, assignment]
    outcome = built.trainer.fit()
    built.close()
    state = built.context.state
    return {"outcome": outcome, "updates": state.step, "target_tokens": state.target_tokens}


@pytest.fixture(scope="module")
def ended(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, dict[str, Any]]]]:
    """Where such runs are, and what each of two ranks has counted."""
    place = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("ended") / "place"))
    return place, forked.ranks(2, run_to_every_end, cwd=place)


@pytest.mark.parametrize("end", ENDS)
def test_updates_after_the_last_log_line_are_logged_at_every_end(
    end: str, ended: tuple[Path, list[dict[str, dict[str, Any]]]]
) -> None:
    place, by_rank = ended
    trained, other = (found[end] for found in by_rank)
    assert trained == other
    assert trained["outcome"] == ("stopped" if end == "stop" else "finished")
    assert trained["updates"] % 5, "it ends between two log lines"
    lines = read_metrics(place / "runs" / end)
    assert [line["step"] for line in lines[:-1]] == list(range(5, trained["updates"], 5))
    assert lines[-1]["step"] == trained["updates"]
    assert lines[-1]["total_target_tokens"] == trained["target_tokens"]
    assert {key: sum(line[key] for line in lines) for key in ("updates", "target_tokens")} == {
        key: trained[key] for key in ("updates", "target_tokens")
    }


BY_LIMITS = {
    "finished": [],
    "not-finite": ["optimizer.lr=1e30", "training.max_skipped_in_a_row=2", "training.max_updates=30"],
}
"""How a run ends by its settings."""
BY_ERRORS = {
    "refused": UserError("no"),
    "exception": RuntimeError("no"),
    "full-disk": OSError(28, "No space left on device"),
    "interrupt": KeyboardInterrupt(),
    "another-rank": RuntimeError("no"),
}
OUTCOMES = {
    "finished": (0, "finished"),
    "stopped": (75, "stopped"),
    "refused": (2, "refused"),
    **dict.fromkeys(("not-finite", "exception", "full-disk", "interrupt", "another-rank"), (1, "failed")),
}


def run_with_a_tracker(end: str) -> tuple[int, list[Any]]:
    """As a rank: the exit code of the command, and what a slow tracker got."""
    told: list[Any] = []

    class Writer(NoMetrics):
        def train(self, step: int, figures: Mapping[str, Any]) -> None:
            time.sleep(0.05)
            told.append(step)

        def event(self, step: int, figures: Mapping[str, Any]) -> None:
            if figures["event"] == "end":
                told.append((figures["outcome"], figures["exit_code"]))

        def close(self, *_: Any) -> None:
            told.append("close")

    @component("tracker", "telling")
    class Telling(Tracker):
        """Tells."""

        def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Any:
            return Writer()

    def train_on(self: Any, update: Any) -> None:
        if self._run.state.step == LAST and end == "stopped":
            os.kill(os.getpid(), signal.SIGTERM)
        if self._run.state.step == LAST and end in BY_ERRORS and (end != "another-rank" or os.environ["RANK"] == "1"):
            raise BY_ERRORS[end]
        as_it_is(self, update)

    as_it_is, loop.Trainer._train_on = loop.Trainer._train_on, train_on  # type: ignore[method-assign]
    settings = [*SHARED, "training.log_every=1", "training.max_updates=9", "trackers=[telling]", "name=told"]
    try:
        code = main.main(["small.yaml", *settings, *BY_LIMITS.get(end, [])])
    except KeyboardInterrupt:
        code = 1
    return code, told


@pytest.mark.parametrize("end", OUTCOMES)
def test_trackers_get_all_and_how_it_ended_at_every_end(end: str, forked: Forked, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    code, told = forked.ranks(1 + (end == "another-rank"), run_with_a_tracker, end, cwd=place, meet=False)[0]
    logged = [line["step"] for line in read_metrics(place / "runs" / "told")]
    assert logged
    outcome = OUTCOMES[end]
    assert (code, told) == (outcome[0], [*logged, outcome[::-1], "close"])
