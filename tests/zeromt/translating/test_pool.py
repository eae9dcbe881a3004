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
from tests.conftest import descendants, is_running
from tests.trainer.conftest import TrainedRun
from trainer.inference.loading import check_same_tokenizer
from zeromt.translating.pool import AHEAD, Pool
from zeromt.translating.worker import Answer, Chunk, Options, Worker

SECTION = SearchSection(beam=2, batch_tokens=256)


def folders(trained: TrainedRun) -> list[Path]:
    return [trained.folder / "checkpoints" / "step-00000300"]


def options_of(trained: TrainedRun, **more: Any) -> Options:
    return Options(run=str(trained.folder), **{"candidates": 2, **more})


def chunks_of(trained: TrainedRun, number: int, size: int = 12) -> list[Chunk]:
    lines = ["", *trained.source.read_text().splitlines()]
    return [Chunk(first=i * size, sources=lines[i * size : (i + 1) * size]) for i in range(number)]


@pytest.fixture(scope="module")
def pool(trained: TrainedRun) -> Iterator[Pool]:
    started = Pool(folders(trained), options_of(trained), SECTION, [None, None])
    yield started
    started.close()


def plain(answer: Answer) -> list[Any]:
    return [line for line in answer.lines if line is not None]


def test_two_processes_give_what_one_gives(trained: TrainedRun, pool: Pool) -> None:
    chunks, job = chunks_of(trained, 5), Worker(folders(trained), options_of(trained), SECTION)
    told: list[int] = []
    found = list(pool.answers(chunks, told.append))
    assert told == [12] * 5
    for answer, chunk in zip(found, chunks, strict=True):
        assert plain(answer) == plain(job.do(chunk))
        assert None not in answer.lines


def test_scores_too(trained: TrainedRun, pool: Pool) -> None:
    sources, targets = trained.source.read_text().splitlines(), trained.reference.read_text().splitlines()
    chunk = Chunk(first=0, sources=sources, targets=[*targets[:-1], "x " * 300])
    (answer,) = pool.answers([chunk])
    alone = Worker(folders(trained), options_of(trained), SECTION).do(chunk)
    assert plain(answer)[:-1] == plain(alone)[:-1]
    last = answer.lines[-1]
    assert last is not None
    assert [t.score for t in last] == [pytest.approx(float("nan"), nan_ok=True)]


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
    given = (folders(trained), options_of(trained, candidates=3))
    job = Worker(*given, section)
    whole = plain(job.do(Chunk(first=0, sources=lines)))
    parts = [plain(job.do(Chunk(first=i, sources=lines[i : i + 2]))) for i in (0, 2)]
    shares = [
        Worker(*given, section, rank=rank, world_size=2).do(Chunk(first=0, sources=lines)).lines for rank in (0, 1)
    ]

    def ids(rows: list[Any]) -> list[Any]:
        return [[t.ids for t in translations] for translations in rows]

    assert ids(whole) == ids(parts[0] + parts[1])
    assert sum(line is not None for share in shares for line in share) == len(lines)
    other = Worker(*given, dataclasses.replace(section, seed=6))
    assert ids(whole) != ids(plain(other.do(Chunk(first=0, sources=lines))))


def test_a_process_that_is_killed_is_an_error(trained: TrainedRun) -> None:
    before = set(descendants(os.getpid()))
    pool = Pool(folders(trained), options_of(trained), SECTION, [None, None])
    try:
        answers = pool.answers(iter(chunks_of(trained, 8)))
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
    pool = Pool(folders(trained), options_of(trained), SECTION, [None])
    chunk = Chunk(first=10, sources=["a", "b"], prefixes=["", "word " * 300])
    with pytest.raises(UserError, match=r"--prefix: line 12 has \d+ pieces; allowed is at most 255"):
        list(pool.answers([chunk]))
    pool.close()
    with pytest.raises(UserError, match="manifest"):
        Pool([tmp_path], options_of(trained), SECTION, [None])


def test_an_ensemble_has_one_tokenizer(trained: TrainedRun, tmp_path: Path) -> None:
    ours, theirs = trained.folder / "checkpoints" / "step-00000300", tmp_path
    model = (ours / "tokenizer.model").read_bytes()
    (theirs / "tokenizer.model").write_bytes(model)
    check_same_tokenizer([ours, theirs, ours])
    (theirs / "tokenizer.model").write_bytes(model + b"\xc0\x0c\x01")  # a field that SentencePiece does not know
    with pytest.raises(UserError, match=r"--ensemble: .* has tokenizer "):
        check_same_tokenizer([ours, theirs])
