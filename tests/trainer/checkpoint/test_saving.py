"""Saving with and without stopping: the same bytes, and failures that cost nothing but the save."""

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import contents
from tests.forked import fork_ranks
from tests.trainer.checkpoint.small_engine import KEPT, Saving, SmallEngine
from trainer.checkpoint import format as format_
from trainer.checkpoint import save
from trainer.checkpoint.format import read_whole
from trainer.checkpoint.save import available_memory, shortage_of
from trainer.engines.batches import ParameterState
from trainer.ranks.distributed import World
from trainer.runs.layout import complete_steps


def hold(gate: threading.Event) -> None:
    """Let this process write tensors when the gate is open, and not before."""
    write = format_.write_tensors

    def held(path: Path, tensors: dict[str, torch.Tensor]) -> Any:
        gate.wait()
        return write(path, tensors)

    vars(format_)["write_tensors"] = held


@pytest.mark.parametrize(("size", "keeps_ema"), [(1, True), (2, False), (5, True)])
def test_ways_to_write_give_the_same_tensors(size: int, keeps_ema: bool, tmp_path: Path) -> None:
    """At once, and in the background while the weights change; in one file of a kind or in several."""

    def task(world: World) -> None:
        for name in "abc":
            saving = Saving(tmp_path / name, world, SmallEngine(keeps_ema=keeps_ema), asynchronous=name != "a")
            saving.save(1)
            gate = threading.Event()
            hold(gate)
            if name == "c":
                vars(format_)["PART_BYTES"] = 100
            if name == "a":
                gate.set()
            saving.begin(2)
            if name != "a":
                assert saving.saver.in_flight
                saving.engine.at(3)
                saving.state.recent_losses.append(9.0)
            gate.set()
            saving.saver.commit()
            assert not saving.saver.in_flight
            assert saving.events[-1]["succeeded"]

    fork_ranks(size, task)
    first, second, third = (tmp_path / name / "checkpoints" / "step-00000002" for name in "abc")
    assert contents(first) == contents(second)
    assert {path.stat().st_mode for path in first.iterdir()} == {(first / "state.json").stat().st_mode}
    if size == 1:
        assert any(path.name.endswith("-1.safetensors") for path in third.iterdir())
    for checkpoint in map(read_whole, (first, third)):
        weights, moments, averages = (checkpoint.stored(kind) for kind in ("model", "optimizer", "ema"))
        assert checkpoint.weights_kind(raw=False) == ("ema" if keeps_ema else "model")
        for name, tensors in SmallEngine().at(2).tensors.items():
            stored = [weights[name], *(moments[f"{key}/{name}"] for key in KEPT)] + (
                [averages[name]] if keeps_ema else []
            )
            assert all(map(torch.equal, stored, tensors))


class GathersBadly(SmallEngine):
    def parameter_states(self) -> Iterator[ParameterState]:
        yield from islice(super().parameter_states(), 2)
        raise RuntimeError("a collective has failed")


def test_an_error_of_gathering_ends_the_rank_and_is_no_failed_save(tmp_path: Path) -> None:
    def task(world: World) -> None:
        saving = Saving(tmp_path / "run", world, GathersBadly())
        with pytest.raises(RuntimeError, match="a collective has failed"):
            saving.begin(1)
        assert saving.events == []
        assert not saving.saver.in_flight

    fork_ranks(1, task)
    assert complete_steps(tmp_path / "run") == []


def test_the_next_save_finishes_the_one_in_flight_and_a_step_is_saved_again_with_its_scores(tmp_path: Path) -> None:
    def task(world: World) -> None:
        saving = Saving(tmp_path / "run", world, keep_last=9)
        for step in (1, 2):
            saving.begin(step)
        saving.state.scores = {"nll": {2: 1.0}}
        saving.saver.save_for_good(is_finished=True)
        assert [event["step"] for event in saving.events] == [1, 2, 2]
        assert not saving.saver.in_flight

    fork_ranks(2, task)
    assert complete_steps(tmp_path / "run") == [1, 2]
    state = read_whole(tmp_path / "run" / "checkpoints" / "step-00000002").state()
    assert state["trainer"]["scores"] == {"nll": {"2": 1.0}}


@pytest.mark.parametrize("keeps_ema", [False, True])
def test_without_memory_for_a_copy_training_stops_for_the_save(keeps_ema: bool, tmp_path: Path) -> None:
    share = (16 if keeps_ema else 12) * sum(SmallEngine().parameter_sizes().values())

    def task(world: World) -> None:
        saving = Saving(tmp_path / "run", world, SmallEngine(keeps_ema=keeps_ema))
        for step, left in ((1, 2 * share - 1), (2, 2 * share)):
            vars(save)["available_memory"] = lambda: left if world.rank == 0 else 2 * share  # noqa: B023 (called at once)
            saving.begin(step)
            assert saving.saver.in_flight == (step == 2)
            saving.saver.commit()
            assert saving.events[-1]["succeeded"]

    fork_ranks(2, task)


def test_memory_is_what_the_least_of_machine_and_groups_leaves_to_all_ranks_of_a_machine(tmp_path: Path) -> None:
    """By what the kernel says in its files; what it caches and does not need is free."""
    assert available_memory(tmp_path) > 1 << 20, "what the machine has"
    for name, content in {
        "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/memory.max": f"{(7 << 30) + 4}\n",
        "sys/fs/cgroup/job/memory.current": f"{7 << 30}\n",
        "sys/fs/cgroup/job/memory.stat": "anon 5\nactive_file 3\ninactive_file 6\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available_memory(tmp_path) == 10
    assert shortage_of([("a", 25, 100), ("a", 25, 110), ("b", 10, 20), ("c", 50, 100)]) is None
    problem = shortage_of([("a", 10, 100), ("b", 30, 100), ("b", 30, 90)])
    assert problem == "b has 100 bytes of memory left, copies of its ranks' shards take 60"
