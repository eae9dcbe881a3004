"""Updates that are fetched and counted ahead: what ranks wait for, and that what is saved knows nothing of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from model import ObjectiveOutput
from tests.conftest import Corpus
from tests.forked import Forked
from tests.trainer.many_runs import train_all
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

        for name in ("sum", "gather", "from_main"):
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
    for steps in forked.ranks(2, count_messages, settings, cwd=tmp_path):
        assert steps, "before and after"
        assert not {*steps} & {*range(1, 10)}, "and none for the log line"


def spikes_at(world: World, overrides: list[str], steps: list[int]) -> list[tuple[Any, ...]]:
    """As a rank: train with one update whose loss jumps; what became of it."""
    rewinds: list[tuple[Any, ...]] = []
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
            rewinds.append((rewind.step, rewind.skipped_ranges, built.run.state.step, built.saver.saved_step))
            built.close()
    return rewinds


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
