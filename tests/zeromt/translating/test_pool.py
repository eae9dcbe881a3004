"""Several processes do what one does, and none outlives the one that started it."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import SearchSection, UserError
from configs.components import make
from tests.trainer.conftest import TrainedRun
from tests.waiting import wait_until
from trainer.inference.loading import check_same_tokenizer
from zeromt.translating.pool import AHEAD, Pool
from zeromt.translating.worker import Answer, Chunk, Settings, Worker


def settings_of(trained: TrainedRun, **changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "checkpoints": [str(trained.folder / "checkpoints" / "step-00000300")],
        "raw_weights": False,
        "precision": None,
        "tags": None,
        "section": SearchSection(beam=2, batch_tokens=256),
        "n_best": 2,
    }
    return Settings(**{**fields, **changes})


def chunks_of(trained: TrainedRun, number: int, size: int = 12) -> list[Chunk]:
    lines = ["", *trained.source.read_text().splitlines()]
    return [Chunk(first=i * size, sources=lines[i * size : (i + 1) * size]) for i in range(number)]


@pytest.fixture(scope="module")
def pool(trained: TrainedRun) -> Iterator[Pool]:
    started = Pool(settings_of(trained), [None, None])
    yield started
    started.close()


def plain(answer: Answer) -> list[Any]:
    return [line.translations for line in answer.lines if line is not None]


def test_two_processes_give_what_one_gives(trained: TrainedRun, pool: Pool) -> None:
    chunks, job = chunks_of(trained, 5), Worker(settings_of(trained))
    told: list[int] = []
    found = list(pool.answers(chunks, told.append))
    assert len(found) == 5
    told_alone: list[int] = []
    for answer, chunk in zip(found, chunks, strict=True):
        assert plain(answer) == plain(job.do(chunk, told_alone.append))
        assert None not in answer.lines
    assert sorted(told) == sorted(told_alone), "the batches are the same"
    assert sum(told) == sum(len(list(filter(None, chunk.sources))) for chunk in chunks)


def test_scores_too(trained: TrainedRun, pool: Pool) -> None:
    sources, targets = trained.source.read_text().splitlines(), trained.reference.read_text().splitlines()
    chunk = Chunk(first=0, sources=sources, targets=[*targets[:-1], "x " * 300])
    (answer,) = pool.answers([chunk])
    alone = Worker(settings_of(trained)).do(chunk)
    assert plain(answer)[:-1] == plain(alone)[:-1]
    last = answer.lines[-1]
    assert last is not None
    assert [t.score for t in last.translations] == [pytest.approx(float("nan"), nan_ok=True)]


def test_takes_no_more_chunks_than_it_needs(trained: TrainedRun, pool: Pool) -> None:
    """However long the input, a few chunks are held at a time."""
    num_taken = 0

    def taken() -> Iterator[Chunk]:
        nonlocal num_taken
        for chunk in chunks_of(trained, 8, size=2):
            num_taken += 1
            yield chunk

    for num_given, _ in enumerate(pool.answers(taken()), start=1):
        assert num_taken <= num_given + AHEAD
    assert num_given == 8


def test_sampling_draws_by_line(trained: TrainedRun) -> None:
    section = SearchSection(sampler=make("sampler", "truncated", temperature=3.0), seed=5)
    lines = [line.sources[1] for line in chunks_of(trained, 4)]
    settings = settings_of(trained, section=section, n_best=3)
    job = Worker(settings)
    whole = plain(job.do(Chunk(first=0, sources=lines)))
    parts = [plain(job.do(Chunk(first=i, sources=lines[i : i + 2]))) for i in (0, 2)]
    shares = [Worker(settings, rank=rank, world_size=2).do(Chunk(first=0, sources=lines)).lines for rank in (0, 1)]

    def ids(rows: list[Any]) -> list[Any]:
        return [[t.ids for t in translations] for translations in rows]

    assert ids(whole) == ids(parts[0] + parts[1])
    assert sum(line is not None for share in shares for line in share) == len(lines)
    other = Worker(dataclasses.replace(settings, section=dataclasses.replace(section, seed=6)))
    assert ids(whole) != ids(plain(other.do(Chunk(first=0, sources=lines))))


def test_a_process_that_is_killed_is_an_error(trained: TrainedRun) -> None:
    pool = Pool(settings_of(trained), [None, None])
    try:
        processes = [worker._process for worker in pool._workers]
        answers = pool.answers(iter(chunks_of(trained, 8)))
        next(answers)
        os.kill(processes[1].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=rf"translation process {processes[1].pid} ended by SIGKILL"):
            list(answers)
    finally:
        pool.close()
    assert all(process.poll() is not None for process in processes)


def test_errors_of_a_process_are_those_of_the_one_that_started_it(trained: TrainedRun, tmp_path: Path) -> None:
    """And it ends when nobody holds its pipe."""
    pool = Pool(settings_of(trained), [None])
    worker = pool._workers[0]
    chunk = Chunk(first=10, sources=["a", "b"], prefixes=["", "word " * 300])
    with pytest.raises(UserError, match=r"--prefix: line 12 has \d+ pieces; allowed is at most 255"):
        list(pool.answers([chunk]))
    worker.connection.close()
    wait_until(lambda: worker._process.poll() is not None)
    with pytest.raises(UserError, match="manifest"):
        Pool(settings_of(trained, checkpoints=[str(tmp_path)]), [None])


def test_an_ensemble_has_one_tokenizer(trained: TrainedRun, tmp_path: Path) -> None:
    ours, theirs = trained.folder / "checkpoints" / "step-00000300", tmp_path
    model = (ours / "tokenizer.model").read_bytes()
    (theirs / "tokenizer.model").write_bytes(model)
    check_same_tokenizer([ours, theirs, ours])
    (theirs / "tokenizer.model").write_bytes(model + b"\xc0\x0c\x01")  # a field that SentencePiece does not know
    with pytest.raises(UserError, match=r"--ensemble: .* has tokenizer "):
        check_same_tokenizer([ours, theirs])
