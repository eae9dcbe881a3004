"""Updates that are fetched and counted ahead: what ranks wait for, and that what is saved knows nothing of it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from configs import load_run
from data_pipeline.stream.batch import MicroBatch
from tests.conftest import Corpus
from tests.forked import Forked, fork
from tests.trainer.many_runs import train_all
from trainer.build import build
from trainer.lookahead import Flags, Lookahead
from trainer.ranks.distributed import World
from trainer.spikes import Rewind

SMALL = [
    "training.tensorboard=false",
    "training.memory_probe=false",
    "model.d_model=16",
    "model.feed_forward.d_ff=32",
    "stream.source_tokens=384",
    "stream.target_tokens=384",
]
BLOCKING = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter_tensor",
    "scatter",
    "send",
]


class Counter:
    """Collectives that the main thread calls, while no engine is at work, by the number of updates done then."""

    def __init__(self, engine: Any) -> None:
        self.calls: list[tuple[int, str]] = []
        self.step = 0
        self._is_inside = False
        for name in BLOCKING:
            setattr(dist, name, self._counted(name, getattr(dist, name)))
        for name in ("accumulate", "step"):
            setattr(engine, name, self._inside(name, getattr(engine, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and not self._is_inside:
                self.calls.append((self.step, name))
            return function(*args, **kwargs)

        return counted

    def _inside(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **kwargs: Any) -> Any:
            self._is_inside = True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_inside = False
                self.step += name == "step"

        return inside


def count_collectives(world: World, overrides: list[str]) -> dict[int, list[str]]:
    """As a rank: collectives between two updates, by the number of the first."""
    counters: list[Counter] = []
    train_all(world, [overrides], lambda built, _: counters.append(Counter(built.context.engine)))
    [counter] = counters
    return {step: [name for at, name in counter.calls if at == step] for step in range(counter.step + 1)}


def test_blocking_collectives_between_two_updates(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    settings = [
        *corpus_en_fr.overrides,
        *SMALL,
        "training.max_updates=10",
        "training.log_every=5",
        "evaluation.every_updates=0",
    ]
    for found in forked.ranks(2, count_collectives, settings, cwd=tmp_path):
        plain = {step: found[step] for step in (2, 3, 4, 6, 7, 8, 9)}
        print(f"blocking collectives after updates {list(plain)}: {sum(map(len, plain.values()))}; after 5: {found[5]}")
        assert not any(plain.values())
        assert found[5], "the figures of a log step are summed: this test would see it"


def spike_at(world: World, overrides: list[str], step: int) -> dict[str, Any]:
    """As a rank: train with one update whose loss jumps; what became of it."""
    config = load_run("debug", overrides)
    if world.is_main:
        Path(config.folder).mkdir(parents=True)
    world.barrier()
    built = build(config, world, stop_requested=lambda: False)
    engine, done = built.context.engine, [0]
    accumulate, apply = engine.accumulate, engine.step

    def louder(*args: Any, **kwargs: Any) -> Any:
        out = accumulate(*args, **kwargs)
        return type(out)(*(20 * figure for figure in out)) if done[0] == step - 1 else out

    def counted(*args: Any, **kwargs: Any) -> Any:
        done[0] += 1
        return apply(*args, **kwargs)

    engine.accumulate, engine.step = louder, counted  # type: ignore[method-assign]
    try:
        built.trainer.fit()
    except Rewind as rewind:
        return {"step": rewind.step, "ranges": rewind.skipped_ranges, "done": done[0], "saved": built.saved_step}
    finally:
        built.close()
    return {}


def spikes_at(world: World, overrides: list[str], steps: list[int]) -> list[dict[str, Any]]:
    return [spike_at(world, [*overrides, f"name=at-{step}"], step) for step in steps]


def test_a_spike_is_seen_before_the_second_update_after_it_and_before_it_is_saved(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    settings = [*corpus_en_fr.overrides, *SMALL, "training.max_updates=24", "stability.skip_updates=4"]
    settings += ["checkpoint.every_updates=10", "evaluation.every_updates=0", f"output={tmp_path}"]
    steps = {"between": 18, "where it is saved": 20, "at the end": 24}
    for of_rank in forked.ranks(2, spikes_at, settings, list(steps.values()), cwd=tmp_path):
        for (where, step), found in zip(steps.items(), of_rank, strict=True):
            assert found["ranges"] == [(0, step - 4, step - 1)], f"{where}; updates are counted from 0"
            assert found["step"] == step, where
            assert found["done"] == step + (where == "between"), "it is seen before the second update after it"
            assert found["saved"] == (20 if step == 24 else 10), "a checkpoint holds what the spike has done"


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
        tokens = np.full((2, 3), 5)
        return [
            MicroBatch(
                lane=0, dataset=0, pair_ids=np.arange(2), source=tokens, target_input=tokens, target_output=tokens
            )
        ]

    def end_epoch(self) -> None:
        self.epoch, self.update = self.epoch + 1, 0

    def state(self) -> tuple[int, int]:
        return self.epoch, self.update


FLAGS = Flags(milliseconds=1500, loss_sums=[2.0, 0.5])


def alone(problem: Exception | None = None) -> list[tuple[Any, ...]]:
    """What is taken, and the state and the corrupt blocks after it although more is fetched by then."""
    reader: Any = Reader(problem)
    updates, found = Lookahead(reader, World(timeout_minutes=1)), list[tuple[Any, ...]]()
    updates.begin(FLAGS, step=0, fetch=True)
    for step in range(5):
        assert updates.read().loss_sums == [2.0, 0.5]
        try:
            update = updates.take()
        except OSError as error:
            return [*found, (str(error), updates.state())]
        told = None if update is None else (update.number, update.counts.pairs, update.seconds, update.seconds_step)
        updates.begin(FLAGS, step=step + 1, fetch=True)
        found.append((told, updates.state(), updates.num_corrupt_blocks))
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


def test_nothing_is_fetched_behind_the_last_update() -> None:
    reader: Any = Reader()

    def look() -> int:
        updates = Lookahead(reader, World(timeout_minutes=1))
        updates.begin(FLAGS, step=0, fetch=True)
        updates.read()
        updates.take()
        updates.begin(FLAGS, step=0, fetch=False)
        assert updates.fetched is None
        assert updates.read().loss_sums == [2.0, 0.5]
        return int(reader.update)

    assert fork(look) == 1
