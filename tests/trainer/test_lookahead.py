"""Updates that are fetched and counted ahead: what ranks wait for, and that what is saved knows nothing of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.stream.batch import MicroBatch
from model import ObjectiveOutput
from tests.conftest import Corpus
from tests.forked import Forked, fork
from tests.trainer.many_runs import train_all
from trainer.lookahead import Flags, Lookahead
from trainer.loop import Trainer
from trainer.ranks.distributed import World
from trainer.spikes import Rewind

SMALL = [
    "training.tensorboard=false",
    "model.d_model=16",
    "model.feed_forward.d_ff=32",
    "stream.source_tokens=384",
    "stream.target_tokens=384",
]


def count_messages(world: World, overrides: list[str]) -> list[int]:
    """As a rank: updates done at each message that the ranks wait for, but for those of the engine."""
    steps: list[int] = []

    def count(built: Trainer, world: World) -> None:
        def counted(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*items: Any) -> Any:
                steps.append(built.run.state.step)
                return method(*items)

            return call

        for name in ("sum", "sum_floats", "gather", "from_main"):
            setattr(world, name, counted(getattr(world, name)))

    train_all(world, [overrides], count)
    return steps


def test_messages_that_ranks_wait_for_between_two_updates(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    settings = [
        *corpus_en_fr.overrides,
        *SMALL,
        "training.max_updates=10",
        "training.log_every=5",
        "evaluation.every_updates=0",
    ]
    for found in forked.ranks(2, count_messages, settings, cwd=tmp_path):
        assert {*found} & {*range(1, 10)} == {5}, "but for the log line's"


def spikes_at(world: World, overrides: list[str], steps: list[int]) -> list[tuple[Any, ...]]:
    """As a rank: train with one update whose loss jumps; what became of it."""
    found: list[tuple[Any, ...]] = []
    for step in steps:
        runs: list[Trainer] = []

        def spoil(built: Trainer, _: World, step: int = step, runs: list[Trainer] = runs) -> None:
            accumulate, state = built.run.engine.accumulate, built.run.state

            def louder(*args: Any, **kwargs: Any) -> ObjectiveOutput:
                out = accumulate(*args, **kwargs)
                return ObjectiveOutput(*(20 * figure for figure in out)) if state.step == step - 1 else out

            built.run.engine.accumulate = louder  # type: ignore[method-assign]
            runs.append(built)

        try:
            train_all(world, [[*overrides, f"name=at-{step}"]], spoil)
        except Rewind as rewind:
            [built] = runs
            found.append((rewind.step, rewind.skipped_ranges, built.run.state.step, built.saver.saved_step))
            built.close()
    return found


def test_a_spike_is_seen_before_the_second_update_after_it_and_before_it_is_saved(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    settings = [*corpus_en_fr.overrides, *SMALL, "training.max_updates=24", "stability.skip_updates=4"]
    settings += ["checkpoint.every_updates=10", "evaluation.every_updates=0", f"output={tmp_path}"]
    between, saved, at_the_end = 18, 20, 24
    expected = [
        (between, [(0, 14, 17)], 19, 10),  # updates are counted from 0
        (saved, [(0, 16, 19)], 20, 10),
        (at_the_end, [(0, 20, 23)], 24, 20),
    ]
    assert forked.ranks(2, spikes_at, settings, [between, saved, at_the_end], cwd=tmp_path) == [expected, expected]


class Reader:
    """Three updates, then the end of an epoch or an error."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.epoch, self.update, self.num_corrupt_blocks, self._problem = 0, 0, 0, problem

    def next_update(self) -> list[MicroBatch | None]:
        if self.update == 3 and self._problem is not None:
            raise self._problem
        self.update += 1
        self.num_corrupt_blocks += 1
        if self.update == 4:
            return [None]
        ids = np.full((2, 3), 5)
        return [MicroBatch(lane=0, dataset=0, pair_ids=np.arange(2), source=ids, target_input=ids, target_output=ids)]

    def end_epoch(self) -> None:
        self.epoch, self.update = self.epoch + 1, 0

    def state(self) -> tuple[int, int]:
        return self.epoch, self.update


def alone(problem: Exception | None = None) -> list[tuple[Any, ...]]:
    """What is taken, and state and corrupt blocks after it, although more is fetched by then; but for the last."""
    reader: Any = Reader(problem)
    updates, found = Lookahead(reader, World(timeout_minutes=1)), list[tuple[Any, ...]]()
    flags = Flags(milliseconds=1500, loss_sums=[2.0, 0.5])
    updates.begin(flags, step=0, fetch=True)
    for step in range(5):
        assert updates.read() == flags
        try:
            update = updates.take()
        except OSError as error:
            return [*found, (str(error), updates.state())]
        told = None if update is None else (update.number, update.counts.pairs, update.seconds, update.seconds_step)
        updates.begin(flags, step=step + 1, fetch=step < 4)
        found.append((told, updates.state(), updates.num_corrupt_blocks))
    assert updates.fetched is None
    return found


def test_the_state_is_that_of_the_update_that_was_taken() -> None:
    assert fork(alone) == [
        ((0, 2, 1.5, 0), (0, 1), 1),
        ((1, 2, 1.5, 1), (0, 2), 2),
        ((2, 2, 1.5, 2), (0, 3), 3),
        (None, (1, 0), 4),
        ((0, 2, 1.5, 4), (1, 1), 5),
    ]


def test_what_the_reader_raises_comes_in_its_place() -> None:
    assert fork(lambda: alone(OSError("block 7 is broken")))[2:] == [
        ((2, 2, 1.5, 2), (0, 3), 3),
        ("block 7 is broken", (0, 3)),
    ]
