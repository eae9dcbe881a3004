"""Several processes do what one does, and none outlives the one that started it."""

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import SearchSection, UserError
from tests.conftest import descendants, is_running
from tests.trainer.conftest import TrainedRun
from trainer.inference.loading import check_same_tokenizer
from zeromt.translator.pool import AHEAD, Pool
from zeromt.translator.worker import Answer, Options, Task, TranslationSettings, Worker

SETTINGS = TranslationSettings(section=SearchSection(beam=2, batch_tokens=256), number=2)


def given(trained: TrainedRun) -> tuple[list[Path], Options]:
    return [trained.folder / "checkpoints" / "step-00000300"], Options(run=str(trained.folder))


def tasks_of(trained: TrainedRun, number: int, size: int = 12) -> list[Task]:
    lines = ["", *trained.source.read_text().splitlines()]
    return [Task(sources=lines[i * size : (i + 1) * size], settings=SETTINGS) for i in range(number)]


@pytest.fixture(scope="module")
def pool(trained: TrainedRun) -> Iterator[Pool]:
    started = Pool(*given(trained), [None, None])
    yield started
    started.close()


def plain(answer: Answer) -> list[Any]:
    return [line for line in answer.lines if line is not None]


def test_two_processes_give_what_one_gives(trained: TrainedRun, pool: Pool) -> None:
    """Scores, too: of what is longer than the model holds there is none."""
    sources, targets = trained.source.read_text().splitlines(), trained.reference.read_text().splitlines()
    tasks = [*tasks_of(trained, 4), Task(sources=sources, targets=[*targets[:-1], "x " * 300], settings=SETTINGS)]
    alone, told = Worker(*given(trained)), list[int]()
    *answers, scored = pool.answers(tasks, told.append)
    assert told == [12] * 4 + [len(sources)]
    for answer, task in zip(answers, tasks[:-1], strict=True):
        assert plain(answer) == plain(alone.do(task))
        assert None not in answer.lines
    *others, [last] = plain(scored)
    assert others == plain(alone.do(tasks[-1]))[:-1]
    assert math.isnan(last.score)


def test_takes_no_more_tasks_than_it_needs(trained: TrainedRun, pool: Pool) -> None:
    """However long the input, a few are held at a time."""
    num_taken = 0

    def taken() -> Iterator[Task]:
        nonlocal num_taken
        for task in tasks_of(trained, 8, size=2):
            num_taken += 1
            yield task

    for num_given, _ in enumerate(pool.answers(taken()), start=1):
        assert num_taken <= num_given + AHEAD
    assert num_given == 8


def test_a_process_that_is_killed_is_an_error(trained: TrainedRun) -> None:
    before = set(descendants(os.getpid()))
    pool = Pool(*given(trained), [None, None])
    try:
        answers = pool.answers(iter(tasks_of(trained, 8)))
        next(answers)
        children = set(descendants(os.getpid())) - before
        os.kill(next(child for child in children if b"spawn_main" in _words(child)), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="a translation process was killed, perhaps for lack of memory"):
            list(answers)
    finally:
        pool.close()
    assert not [child for child in children if is_running(child) and b"spawn_main" in _words(child)]


def _words(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def test_errors_of_a_process_are_those_of_the_one_that_started_it(trained: TrainedRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="manifest"):
        Pool([tmp_path], given(trained)[1], [None])


def test_an_ensemble_has_one_tokenizer(trained: TrainedRun, tmp_path: Path) -> None:
    ours, theirs = trained.folder / "checkpoints" / "step-00000300", tmp_path
    model = (ours / "tokenizer.model").read_bytes()
    (theirs / "tokenizer.model").write_bytes(model)
    check_same_tokenizer([ours, theirs, ours])
    (theirs / "tokenizer.model").write_bytes(model + b"\xc0\x0c\x01")  # a field that SentencePiece does not know
    with pytest.raises(UserError, match=r"--ensemble: .* has tokenizer "):
        check_same_tokenizer([ours, theirs])
