"""One part of a corpus: its chunks that are not there yet are translated and written, one file each."""

import contextlib
from collections import deque
from collections.abc import Iterator

from configs.process.files import disk_errors
from configs.process.progress import Progress, say
from configs.process.streams import note
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import Job, Part, PartsProgress, working
from zeromt.translating.corpus.source import Chunk
from zeromt.translating.engines.zeromt import PreparedRun
from zeromt.translating.mbr import Utility, ranked
from zeromt.translating.worker import Chunk as Lines
from zeromt.translating.worker import of_text


def make_part(job: Job, prepared: PreparedRun, part: Part, *, mbr: Utility | None, processes: int | None) -> None:
    """Translate what is missing of a part. Killed at any moment, the same call goes on with what is missing then.

    Args:
        job: the folder.
        prepared: the engine.
        part: which.
        mbr: orders candidates by minimum Bayes risk.
        processes: see `PreparedRun.start`.

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
            translate = prepared.start(stack, job.root, processes=processes)
            taken: deque[tuple[Chunk, list[str]]] = deque()

            def sources() -> Iterator[Lines]:
                for one in job.corpus.read(iter(missing)):
                    taken.append(one)
                    yield of_text(one[1], first=one[0].first - 1)

            for answers in translate(sources(), shown.batch):
                (chunk, lines), by_line = taken.popleft(), iter(answers)
                found = [next(by_line) if line.strip() else [] for line in lines]
                if mbr is not None:
                    found = [one if isinstance(one, str) else ranked(one, mbr) for one in found]
                head = {"chunk": chunk.number, "identity": job.identity, "build": dict(prepared.build())}
                with disk_errors("-o", job.root):
                    job.path(chunk.number).parent.mkdir(parents=True, exist_ok=True)
                    records.write(job.path(chunk.number), head, list(map(records.record_of, found)))
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
