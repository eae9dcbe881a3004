"""One part of a corpus: its chunks that are not there yet are translated and written, one file each."""

import contextlib
from collections import deque
from collections.abc import Iterator

from configs.components.translation_engine import Prepared, Sources
from configs.process.files import disk_errors
from configs.process.progress import Progress, say
from configs.process.streams import note
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import Job, Part, PartsProgress, working
from zeromt.translating.corpus.source import Chunk


class _Chunks:
    """The chunks that a part has to translate, as the engine takes them, and their records when it has."""

    def __init__(self, job: Job, missing: list[int]) -> None:
        self._job, self._missing = job, missing
        self._taken: deque[tuple[Chunk, list[str]]] = deque()

    def sources(self) -> Iterator[Sources]:
        """The lines with text of each chunk."""
        for chunk, lines in self._job.corpus.read(iter(self._missing)):
            self._taken.append((chunk, lines))
            filled = [row for row, line in enumerate(lines) if line.strip()]
            yield Sources(numbers=[chunk.first + row for row in filled], lines=[lines[row] for row in filled])

    def next_taken(self) -> tuple[Chunk, list[str]]:
        """The first chunk that the engine has taken, and that was not asked for here."""
        return self._taken.popleft()


def make_part(job: Job, prepared: Prepared, part: Part, *, processes: int | None) -> None:
    """Translate what is missing of a part. Killed at any moment, the same call goes on with what is missing then.

    Args:
        job: the folder.
        prepared: the engine.
        part: which.
        processes: see `Prepared.start`.

    Raises:
        UserError: another process works on it, the input has changed, or the disk is full.
    """
    numbers = part.chunks(job.corpus.num_chunks)
    with working(job.root, part), contextlib.ExitStack() as stack:
        missing = [number for number in numbers if not job.path(number).exists()]
        total = job.corpus.lines_of(numbers)
        before = total - sum(job.corpus.chunk(number).lines for number in missing)
        with disk_errors("-o", job.root):
            file = PartsProgress(job.root, part, total=total, done=before)
        if missing:
            what = f"translating part {part.number}/{part.of}"
            bar = stack.enter_context(Progress(what, total, before, unit="lines"))
            shown = _Shown(bar, before, total)
            for chunk, found in _translated(job, prepared, missing, stack, shown, processes):
                with disk_errors("-o", job.root):
                    job.path(chunk.number).parent.mkdir(parents=True, exist_ok=True)
                    records.write(job.path(chunk.number), job.head(chunk.number, prepared.build()), found)
                    file.advance(chunk.lines)
                shown.finish(chunk.lines)
            for line in prepared.warnings():
                note(line)
    said = f"{total:,} lines" + (f", {before:,} of them from before" if before else "")
    say(f"{job.root}: part {part.number} of {part.of} is ready: {said}; --merge joins the parts")


class _Shown:
    """What a bar shows: lines of finished batches, and at a chunk's end all of it."""

    def __init__(self, bar: Progress, done: int, total: int) -> None:
        self._bar, self._batches, self._chunks, self._total = bar, done, done, total

    def batch(self, lines: int) -> None:
        """Count a batch; a line that was split is in several."""
        self._batches = min(self._batches + lines, self._total)
        self._bar.reach(self._batches)

    def finish(self, lines: int) -> None:
        """Count a chunk, blank lines included."""
        self._chunks += lines
        self._bar.reach(self._chunks)


def _translated(
    job: Job, prepared: Prepared, missing: list[int], stack: contextlib.ExitStack, shown: _Shown, processes: int | None
) -> Iterator[tuple[Chunk, list[records.Record]]]:
    """The missing chunks with their records."""
    chunks = _Chunks(job, missing)
    translate = prepared.start(stack, job.root, processes=processes)
    for answers in translate(chunks.sources(), shown.batch):
        chunk, lines = chunks.next_taken()
        by_line = iter(answers)
        yield (
            chunk,
            [
                records.record_of(chunk.first + row, line, next(by_line) if line.strip() else None)
                for row, line in enumerate(lines)
            ],
        )
