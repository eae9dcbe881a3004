"""Reading ahead in a process: the same items as in this one, and an end to everything."""

import gc
import os
import pickle
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
from data_pipeline.errors import DataError
from data_pipeline.stream import process_prefetch
from data_pipeline.stream.process_prefetch import ProcessPrefetch
from tests.conftest import Start, descendants, is_running
from tests.data_pipeline.stream import loader_items
from tests.waiting import PATIENCE, wait_until

Open = Callable[..., ProcessPrefetch[Any]]


@pytest.fixture
def open_stream() -> Iterator[Open]:
    """Opens streams, and sees that nothing of them is left: no process, thread, open file or shared memory."""

    def left() -> list[Any]:
        mapped = Path("/proc/self/maps").read_text().count("zeromt-prefetch")
        return [sorted(os.listdir("/proc/self/fd")), mapped, descendants(os.getpid())]  # noqa: PTH208

    opened: list[ProcessPrefetch[Any]] = []

    def begin(make: Callable[[], Iterator[Any]], limit: int = 2, **settings: int) -> ProcessPrefetch[Any]:
        opened.append(ProcessPrefetch(make, limit, **settings))
        return opened[-1]

    gc.collect()  # streams that other tests dropped
    before, threads = left(), threading.active_count()
    yield begin
    for stream in opened:
        stream.close()
        stream.close()
        with pytest.raises(BaseException):  # noqa: B017 (the error it had, or that it was closed)
            stream.next()
    assert left() == before
    assert threading.active_count() == threads


def take_all(stream: ProcessPrefetch[Any], at_most: int) -> None:
    for _ in range(at_most):
        stream.next()


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal, and arrays with the same type, order and permission to write."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, strict=True)
        assert ours.flags.f_contiguous == theirs.flags.f_contiguous or not theirs.flags.c_contiguous
        assert ours.flags.writeable == theirs.flags.writeable
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif hasattr(theirs, "__dataclass_fields__"):
        for name in theirs.__dataclass_fields__:
            assert_same(getattr(ours, name), getattr(theirs, name))
    else:
        assert ours == theirs


@pytest.mark.parametrize(("limit", "slot_bytes"), [(1, 1 << 20), (3, 1), (300, 4096)])
def test_items_are_those_of_the_iterator(open_stream: Open, limit: int, slot_bytes: int) -> None:
    stream = open_stream(partial(loader_items.mixed, 60), limit, slot_bytes=slot_bytes)
    for expected in loader_items.mixed(60):
        assert_same(stream.next(), expected)
    for _ in range(2):
        with pytest.raises(StopIteration):
            stream.next()


def test_arrays_belong_to_the_caller(open_stream: Open) -> None:
    stream = open_stream(partial(loader_items.mixed, 12), 2)
    items = [stream.next() for _ in range(12)]
    for number, (ours, expected) in enumerate(zip(items, loader_items.mixed(12), strict=True)):
        assert_same(ours, expected)  # later items wrote into the same slots
        for array in (a for a in ours if isinstance(a, np.ndarray) and a.flags.writeable):
            array.fill(number)  # and this changes none of the others


@pytest.mark.parametrize("num_bytes", [100, 10_000_000])
def test_reads_no_further_than_the_limit(open_stream: Open, tmp_path: Path, num_bytes: int) -> None:
    begun = tmp_path / "begun"
    stream = open_stream(partial(loader_items.counted, begun, num_bytes), 3)
    for taken in range(20):
        wait_until(lambda: begun.exists() and begun.stat().st_size >= taken + 3)  # noqa: B023
        assert begun.stat().st_size == taken + 3
        assert stream.next().nbytes == num_bytes


@pytest.mark.parametrize(("name", "good"), [("user", 0), ("data", 3), ("config", 3), ("stop", 0)])
def test_errors_come_in_the_place_of_their_item(open_stream: Open, name: str, good: int) -> None:
    stream = open_stream(partial(loader_items.fails, name, good), 2)
    assert [stream.next() for _ in range(good)] == list(range(good))
    expected = loader_items.ERRORS[name]
    for _ in range(2):
        with pytest.raises(UserError if name == "config" else type(expected)) as caught:
            stream.next()
        assert str(caught.value) == str(expected)


@pytest.mark.parametrize("name", ["value", "exit", "pipe"])
def test_other_errors_come_with_their_traceback(open_stream: Open, name: str) -> None:
    stream = open_stream(partial(loader_items.fails, name, 1))
    assert stream.next() == 0
    error = loader_items.ERRORS[name]
    with pytest.raises(RuntimeError, match=rf"(?s)loader_items\.py.*in __next__.*{type(error).__name__}: {error}"):
        stream.next()


def test_an_iterator_that_cannot_be_made_is_an_error_of_the_first_item(open_stream: Open) -> None:
    with pytest.raises(DataError, match=r"index\.json: is missing"):
        open_stream(loader_items.never_made).next()


def test_a_process_that_failed_ends_whatever_threads_it_has(open_stream: Open) -> None:
    stream = open_stream(loader_items.leaves_a_thread)
    assert stream.next() == 0
    with pytest.raises(DataError):
        stream.next()
    wait_until(lambda: not is_running(stream.pid))


def test_what_cannot_be_sent_is_an_error(open_stream: Open) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        open_stream(lambda: loader_items.numbers())
    stream = open_stream(loader_items.unpicklable)
    assert stream.next() == 0
    with pytest.raises(RuntimeError, match="lambda"):
        stream.next()
    stream = open_stream(loader_items.unloadable)
    assert stream.next() == 0
    with pytest.raises(OSError, match="cannot be made again"):
        stream.next()


@pytest.mark.parametrize("make", [loader_items.numbers, loader_items.busy])
def test_a_killed_process_is_an_error(open_stream: Open, make: Callable[[], Iterator[int]]) -> None:
    stream = open_stream(make, 2)
    assert stream.next() == 0
    wait_until(lambda: stream._inlet.poll(0))
    os.kill(stream.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(stream.pid))
    assert stream.next() == 1  # it had been handed over
    for _ in range(2):
        with pytest.raises(RuntimeError, match=rf"loader process {stream.pid} was ended by SIGKILL.*memory"):
            take_all(stream, at_most=2)


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_exits_is_an_error(open_stream: Open, code: int) -> None:
    stream = open_stream(partial(loader_items.ends, code))
    assert stream.next() == 0
    with pytest.raises(RuntimeError, match=f"with exit code {code}"):
        stream.next()


def test_a_killed_process_is_an_error_while_a_fork_holds_its_pipe(
    open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, copies = process_prefetch._start, []

    def start_and_fork(work: Any, files: tuple[int, ...], numbers: tuple[int, ...]) -> Any:
        copies.append(os.dup(files[0]))
        return start(work, files, numbers)

    monkeypatch.setattr(process_prefetch, "_start", start_and_fork)
    stream = open_stream(loader_items.busy)
    assert [stream.next(), stream.next()] == [0, 1]
    os.kill(stream.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        stream.next()
    os.close(copies[0])


@pytest.mark.parametrize(
    ("make", "delay"),
    [
        (loader_items.numbers, 0),
        (loader_items.busy, 0.5),
        (partial(loader_items.counted, Path("/dev/null"), 30_000_000), 0.5),
    ],
)
def test_close_does_not_wait(open_stream: Open, make: Callable[[], Iterator[Any]], delay: float) -> None:
    stream = open_stream(make, 2, slot_bytes=1 << 20)  # the last one is blocked in the pipe
    time.sleep(delay)
    stream.close()  # whoever waited for the next item would wait for ever
    with pytest.raises(RuntimeError, match="the stream was closed"):
        stream.next()


def test_close_ends_a_stopped_process(open_stream: Open) -> None:
    stream = open_stream(loader_items.numbers)
    assert stream.next() == 0
    os.kill(stream.pid, signal.SIGSTOP)
    stream.close()


def test_a_stopped_process_goes_on(open_stream: Open) -> None:
    stream = open_stream(loader_items.numbers)
    for number in range(20):
        os.kill(stream.pid, signal.SIGSTOP)
        os.kill(stream.pid, signal.SIGCONT)
        assert stream.next() == number


def test_close_ends_a_next_in_another_thread(open_stream: Open) -> None:
    stream = open_stream(loader_items.asleep)
    caught: list[BaseException] = []

    def take() -> None:
        try:
            while True:
                stream.next()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.4)
    stream.close()
    thread.join(PATIENCE)
    assert [str(error) for error in caught] == ["the stream was closed"]


def test_a_stream_that_nobody_holds_ends(open_stream: Open) -> None:
    stream: ProcessPrefetch[int] = ProcessPrefetch(loader_items.numbers, 2)
    pid = stream.pid
    del stream
    gc.collect()
    assert not is_running(pid)


@pytest.mark.parametrize("delay", [0, 0.5])
def test_signals_to_every_process_of_a_job_are_the_parents(open_stream: Open, delay: float) -> None:
    stream = open_stream(loader_items.numbers, 2)
    time.sleep(delay)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        os.kill(stream.pid, number)
    assert [stream.next() for _ in range(10)] == list(range(10))


PARENT = """
import os, sys, signal, time
from functools import partial
from data_pipeline.stream.process_prefetch import ProcessPrefetch
from tests.data_pipeline.stream import loader_items
print("main module", flush=True)
stream = ProcessPrefetch(loader_items.{make}, 2)
stream.next()
{then}
print(stream.pid, flush=True)
"""


@pytest.mark.parametrize(("make", "fork"), [("busy", False), ("asleep", True), ("numbers", True)])
def test_the_process_ends_when_its_parent_is_killed(start: Start, tmp_path: Path, make: str, fork: bool) -> None:
    """Also where a fork of the parent lives on, with all that was open."""
    script = tmp_path / "parent.py"
    fork_code = "child = os.fork()\nif child == 0: time.sleep(1000)\nprint(child)" if fork else ""
    script.write_text(PARENT.format(make=make, then=fork_code) + "time.sleep(1000)\n", encoding="utf-8")
    command = start(sys.executable, str(script))
    assert command.process.stdout is not None
    lines = [command.process.stdout.readline() for _ in range(2 + fork)]
    assert lines[0] == "main module\n"
    command.process.kill()
    try:
        wait_until(lambda: not is_running(int(lines[-1])), "the end of the loader")
    finally:
        if fork:
            os.kill(int(lines[1]), signal.SIGKILL)


@pytest.mark.parametrize(("end", "code"), [("", 0), ("1 / 0", 1), ("os._exit(4)", 4)])
def test_the_process_ends_when_its_parent_exits_without_close(
    start: Start, tmp_path: Path, end: str, code: int
) -> None:
    """Quietly; and an unguarded main module was run once, by the parent."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(make="busy", then="") + end + "\n", encoding="utf-8")
    finished = start(sys.executable, "-X", "dev", str(script)).finish()
    assert finished.code == code
    assert finished.out.splitlines()[:-1] == ["main module"]
    assert not is_running(int(finished.out.splitlines()[-1])) or code == 4
    assert "ZeroDivisionError" in finished.err if code == 1 else finished.err == ""
    wait_until(lambda: not is_running(int(finished.out.splitlines()[-1])))


def test_a_loader_imports_no_torch(open_stream: Open) -> None:
    assert open_stream(loader_items.modules_of_a_loader).next() == []


def test_files_of_the_current_folder_are_no_modules(
    open_stream: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pickle", "numpy", "data_pipeline"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert open_stream(loader_items.numbers).next() == 0
