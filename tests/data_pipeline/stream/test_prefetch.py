"""Reading ahead in a thread and in a process: the same items as without, and an end to everything."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import UserError
from data_pipeline.prepared.index import DataError
from data_pipeline.stream.prefetch import LoaderProcess, Prefetch
from tests.conftest import Start, descendants, is_running
from tests.data_pipeline.stream import loader_items
from tests.waiting import wait_until

Open = Callable[..., tuple[Prefetch[Any], int]]


@pytest.fixture
def open_stream() -> Iterator[Open]:
    """Opens streams of a process, and sees that nothing of them is left: no process and no thread."""
    opened: list[Prefetch[Any]] = []
    before = descendants(os.getpid()), threading.active_count()

    def begin(make: Callable[[], Iterator[Any]], limit: int = 2) -> tuple[Prefetch[Any], int]:
        loader = LoaderProcess(make)
        opened.append(Prefetch(loader, limit))
        return opened[-1], loader.pid

    yield begin
    for stream in opened:
        stream.close()
        stream.close()
    assert (descendants(os.getpid()), threading.active_count()) == before


def test_reading_ahead_is_bounded_and_ends() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number
        raise ValueError("broken")

    before = threading.active_count()
    ahead = Prefetch(count(), 3)
    for number in range(100):
        wait_until(lambda: len(made) >= min(number + 3, 100), "the items ahead")  # noqa: B023
        assert len(made) <= number + 3
        assert ahead.next() == number
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            ahead.next()
    ahead.close()
    assert threading.active_count() == before


def test_items_are_those_of_the_iterator(open_stream: Open) -> None:
    stream, _ = open_stream(loader_items.micro_batches)
    taken = [stream.next() for _ in range(20)]
    for number, [(lane, ours)] in enumerate(map(dict.items, taken)):
        theirs = loader_items.micro_batch(number)
        assert lane == ours.lane == number
        for name in ("pair_ids", "source", "target_input", "target_output"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), strict=True)
            getattr(ours, name).fill(7)  # which no later item has to share


@pytest.mark.parametrize("name", loader_items.ERRORS)
def test_errors_come_in_the_place_of_their_item(open_stream: Open, name: str) -> None:
    """One of the user's as it is, any other with its traceback; and the process ends, whatever threads it has."""
    stream, pid = open_stream(partial(loader_items.fails, name))
    assert [stream.next(), stream.next()] == [0, 1]
    error = loader_items.ERRORS[name]
    for _ in range(2):
        if isinstance(error, UserError):
            with pytest.raises(DataError if name == "data" else UserError) as caught:
                stream.next()
            assert str(caught.value) == str(error)
        else:
            with pytest.raises(RuntimeError, match=rf"(?s)loader_items\.py.*{type(error).__name__}: {error}"):
                stream.next()
    wait_until(lambda: not is_running(pid))


LARGE = partial(loader_items.counted, Path("/dev/null"), 30_000_000)


@pytest.mark.parametrize("make", [loader_items.numbers, loader_items.busy, loader_items.asleep, LARGE])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_close_does_not_wait(open_stream: Open, make: Callable[[], Iterator[Any]], is_stopped: bool) -> None:
    """For whoever is at an item that never comes, in the pipe, or stopped; the fixture sees the rest."""
    stream, pid = open_stream(make)
    stream.next()
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    stream.close()
    assert not is_running(pid)


@pytest.mark.parametrize("delay", [0, 0.5])
def test_signals_to_every_process_of_a_job_are_the_parents(open_stream: Open, delay: float) -> None:
    stream, pid = open_stream(loader_items.numbers)
    time.sleep(delay)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        os.kill(pid, number)
    assert [stream.next() for _ in range(10)] == list(range(10))


PARENT = """
import os, sys, time
from data_pipeline.stream.prefetch import LoaderProcess, Prefetch
from tests.data_pipeline.stream import loader_items
print("main module", flush=True)
loader = LoaderProcess(loader_items.{make})
Prefetch(loader, 2).next()
print(loader.pid, flush=True)
{then}
"""


@pytest.mark.parametrize("make", ["busy", "asleep", "numbers"])
@pytest.mark.parametrize("then", ["time.sleep(1000)", "1 / 0"])
def test_the_process_ends_with_its_parent(start: Start, tmp_path: Path, make: str, then: str) -> None:
    """Which is killed, or exits without `close`; an unguarded main module is run once, by the parent."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(make=make, then=then), encoding="utf-8")
    command = start(sys.executable, str(script))
    assert command.process.stdout is not None
    lines = [command.process.stdout.readline() for _ in range(2)]
    assert lines[0] == "main module\n"
    if then != "1 / 0":
        command.process.kill()
    wait_until(lambda: not is_running(int(lines[1])), "the end of the loader")


def test_a_loader_imports_what_it_needs_alone(
    open_stream: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No torch, and no file of the current folder."""
    for name in ("pickle", "numpy", "data_pipeline"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert open_stream(loader_items.modules_of_a_loader)[0].next() == []
