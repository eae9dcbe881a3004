"""`zeromt translate --part I/N` and `--merge`: a corpus in parts, on any number of machines.

A chunk is a fixed number of lines, so that any number of parts makes the same bytes. Killed at any moment, a
part resumes with the chunks that are missing.
"""

import contextlib
import itertools
import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from configs.errors import UserError
from configs.process.files import check_apart, disk_errors, inside, naming
from configs.process.progress import Progress, say
from trainer.inference.loading import find_checkpoint
from trainer.inference.translation.translator import Translation
from zeromt.translating.lines import CHUNK_LINES, read_files, survey
from zeromt.translator.engine import Engine
from zeromt.translator.scored import is_repeated
from zeromt.translator.store import Store, path_of, read_material
from zeromt.translator.worker import Chunk, Options

FAILED = "the model's output is not a number"
TOO_LONG = "longer than the model holds, in one sentence"
_DIGITS = 6
"""Of scores, which the last bits of a sum do not change."""

Record = list[tuple[str, float]] | None
"""Of a line: its translations with their scores, best first, none of a line that has none; null if they failed."""


def run(
    *,
    part: tuple[int, int] | None,
    options: Options,
    input: Sequence[str | None] | None,
    output: str | None,
    chunk_lines: int | None,
    choose: str | int | None,
    to: str | None,
    replace: bool,
) -> int:
    """Translate a part of a corpus, or merge its parts.

    Args:
        part: I and N; None to merge.
        options: what translates.
        input: files.
        output: the folder.
        chunk_lines: lines of a chunk.
        choose: candidates of a line that the merge writes: `best`, `all` or a number.
        replace: what was begun with other material is renamed, and begun anew.
        to: the merge's file of translations; by default `translations.txt` in the folder.

    Raises:
        UserError: a file, an option or a part is wrong.
    """
    if output is None:
        raise UserError("--output: standard output, with --part or --merge; give a folder")
    files = [Path(name or "-") for name in input or []]
    for path in files or [Path("-")]:
        if not path.is_file():
            raise UserError(f"--input: {str(path)!r}: is not a file; a corpus is read several times: give files")
    outputs = _outputs(Path(to or f"{output}/translations.txt"))
    shown = {"--output": output} | {f"--to ({path.name})": str(path) for path in outputs}
    check_apart({f"--input ({path})": str(path) for path in files}, shown)
    engine = Engine(options, [find_checkpoint(Path(run)) for run in (options.run, *options.ensemble)], splits=True)
    lines, sha256 = survey(files)
    size = chunk_lines or CHUNK_LINES
    material = {"chunk_lines": size, "lines": lines, "sha256": sha256, "engine": engine.identity}
    with naming("-o"):
        store = Store(Path(output), material, "-o", begins=part is not None, replaces=replace and part is not None)
    if part is not None:
        _make_part(store, engine, files, part, material)
        return 0
    store.must_be_complete(math.ceil(lines / size))
    with disk_errors("--to", outputs[0].parent):
        _merge(store, files, size, outputs, 1 if choose in (None, "best") else None if choose == "all" else int(choose))
    return 0


def _outputs(to: Path) -> list[Path]:
    """The files of translations, of sources and of scores."""
    stem = to.name.removesuffix(".txt")
    return [to, *(to.with_name(to.name.replace(stem, f"{stem}.{side}", 1)) for side in ("source", "scores"))]


def _chunks(files: Sequence[Path], size: int) -> Iterator[tuple[int, list[str]]]:
    """The chunks of some files, with their numbers."""
    lines = read_files(files)
    for number in itertools.count():
        if not (chunk := list(itertools.islice(lines, size))):
            return
        yield number, chunk


def _make_part(
    store: Store, engine: Engine, files: Sequence[Path], part: tuple[int, int], material: dict[str, Any]
) -> None:
    """Translate what is missing of a part: of every N-th chunk."""
    number, of = part
    lines, size = material["lines"], material["chunk_lines"]
    missing = set(store.missing(range(number - 1, math.ceil(lines / size), of)))
    total, done = sum(min(size, lines - chunk * size) for chunk in missing), 0
    taken: deque[tuple[int, list[str]]] = deque()

    def sources() -> Iterator[Chunk]:
        for chunk, texts in _chunks(files, size):
            if chunk in missing:
                taken.append((chunk, texts))
                yield Chunk(first=chunk * size, sources=texts)

    with contextlib.ExitStack() as stack:
        if missing:
            bar = stack.enter_context(Progress(f"translating part {number}/{of}", total, unit="lines"))
            engine.start(stack)
            for by_line in engine.translate(sources(), on_lines=bar.advance):
                chunk, texts = taken.popleft()
                store.write(chunk, [_record(text, one) for text, one in zip(texts, by_line, strict=True)])
                done += len(texts)
                bar.reach(done)
            engine.warn()
    say(f"{store.root}: part {number} of {of} is ready; --merge joins the parts")


def _record(text: str, translations: Sequence[Translation]) -> Record:
    if any(math.isnan(one.log_prob) for one in translations):
        return None
    return [(one.text, round(one.score, _DIGITS)) for one in translations] if text.strip() else []


def _merge(store: Store, files: Sequence[Path], size: int, outputs: Sequence[Path], most: int | None) -> None:
    """Write the translations of all chunks, and files with as many lines of sources and of scores.

    A line without a translation is there with a blank one, and without a score.
    """
    lines = blank = repeated = first_hole = 0
    holes: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(inside.replacing(path, sync=True)) for path in outputs]
        bar = stack.enter_context(Progress("merging", unit="lines"))
        for chunk, texts in _chunks(files, size):
            for text, record in zip(texts, store.read(chunk, len(texts)), strict=True):
                lines += 1
                repeated += bool(record and is_repeated(record[0][0]))
                if not text.strip():
                    blank += 1
                elif not record:
                    holes[FAILED if record is None else TOO_LONG] += 1
                    first_hole = first_hole or lines
                for translation, score in (record or [])[:most] or [("", "")]:
                    for file, line in zip(opened, (translation, text, score), strict=True):
                        file.write(f"{line}\n".encode())
            bar.advance(len(texts))
        outputs[0].unlink(missing_ok=True)  # of an earlier merge; it comes last, after the others
    said = [f"{outputs[0]}: {lines:,} lines of the input"]
    if blank:
        said.append(f"{blank:,} of them blank")
    if holes:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in holes.most_common())
        said.append(f"{holes.total():,} without a translation, first line {first_hole} ({reasons})")
    if repeated:
        said.append(f"{repeated:,} whose translation repeats words")
    say(", ".join(said))


def status(folder: Path, *, as_json: bool) -> int:
    """`zeromt status OUT`: how far the translation of a corpus is, over all its parts; speed over the last chunks."""
    material = read_material(folder, "-o")
    if "chunk_lines" not in material:
        raise UserError(f"RUN: {str(folder)!r} is not a corpus that is being translated; give the -o of one")
    lines, size = int(material["lines"]), int(material["chunk_lines"])
    number = math.ceil(lines / size)
    there = [chunk for chunk in range(number) if path_of(folder, chunk).exists()]
    done = sum(min(size, lines - chunk * size) for chunk in there)
    times = sorted(path_of(folder, chunk).stat().st_mtime for chunk in there)[-_RECENT:]
    rate = (len(times) - 1) * size / max(times[-1] - times[0], 1e-3) if len(times) > 1 else 0.0
    progress = {"lines": lines, "done": done, "chunks": number, "chunks_done": len(there), "lines_per_second": rate}
    if as_json:
        print(json.dumps(progress))
        return 0
    print(f"corpus  {folder}\nlines   {done:,} of {lines:,} ({done / max(1, lines):.1%})")
    print(f"chunks  {len(there):,} of {number:,}")
    if done == lines:
        print("left    none; --merge joins the parts")
    elif rate:
        print(f"left    {tqdm.format_interval((lines - done) / rate)} at {rate:,.1f} lines/s")
    return 0


_RECENT = 100
"""Chunks that the speed is measured over."""
