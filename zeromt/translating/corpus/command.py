"""`zeromt translate ... --part I/N` and `--merge`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from configs.components import Choice, TranslationEngine, make
from configs.errors import UserError
from configs.load import parse_tree
from configs.process.environment import restored_environment
from configs.process.files import check_apart, naming
from configs.process.files.inside import read_text
from configs.reading.layers import Layers
from configs.reading.own_files import other_kind
from zeromt.translating.corpus.folder import Part, begin
from zeromt.translating.corpus.merging import Choose, beside, merge
from zeromt.translating.corpus.parts import make_part
from zeromt.translating.mbr import Utility


@dataclasses.dataclass(kw_only=True, frozen=True)
class EngineFile:
    """The content of `--engine FILE`."""

    engine: Annotated[TranslationEngine, Choice("translation_engine")]


@restored_environment()
def run(
    *,
    part: tuple[int, int] | None,
    run: str | None,
    engine: str | None,
    ensemble: list[str],
    search: Mapping[str, Any],
    input: list[str | None] | None,
    input_list: str | None,
    output: str | None,
    candidates: int,
    chunk_lines: int,
    choose: Choose,
    to: str | None,
    mbr: Utility | None,
    processes: int | None,
    **of_run: Any,
) -> int:
    """Translate a part of a corpus, or merge its parts.

    Args:
        part: I and N; None to merge.
        run, ensemble, search: see `zeromt.translating.command.run`; in their place `engine`, a YAML file.
        input, input_list: files, or a file with their names.
        output: the folder.
        candidates: translations to keep of a line.
        chunk_lines: lines of a chunk.
        choose, to: with the merge, which candidates are written, and where.
        mbr: orders candidates by minimum Bayes risk.
        processes: None for one on each GPU or core.
        of_run: `raw_weights`, `precision`, `source_language`, `target_language`, `paragraphs`.

    Raises:
        UserError: a file, an option or a part is wrong; the message names a line where it is about one.
    """
    if output is None:
        raise UserError("--output: standard output, with --part or --merge; give a folder")
    files = _files(input, input_list)
    given = {"ensemble": ensemble, "search": search, **of_run}
    chosen = _of_run(run, given) if engine is None else read_engine(engine, run, given)
    outputs = {"--output": output} if to is None else {"--output": output, "--to": to}
    outputs |= {} if to is None else {f"--to ({path.name})": str(path) for path in beside(Path(to))}
    check_apart({f"--input ({path})": str(path) for path in files}, outputs)
    prepared = chosen.prepare(candidates)
    deciding = {"chunk_lines": chunk_lines, "candidates": candidates, "mbr": mbr, "engine": dict(prepared.identity)}
    with naming("-o"):
        job = begin(Path(output), files, deciding, is_merge=part is None)
    if part is None:
        merge(job, to=None if to is None else Path(to), choose=choose)
    else:
        make_part(job, prepared, Part(number=part[0], of=part[1]), mbr=mbr, processes=processes)
    return 0


def read_engine(name: str, run: str | None, given: Mapping[str, Any]) -> TranslationEngine:
    """The engine of a file.

    Args:
        name: of the file.
        run: RUN, which must not be given.
        given: options of RUN, which must not be given either.

    Raises:
        UserError: the file, or a field, is wrong.
    """
    of_search = dict.fromkeys(given["search"], True)
    for option, value in {"run": run, **given, "search": None, **of_search}.items():
        if value:
            shown = "RUN" if option == "run" else f"--{option.replace('_', '-')}"
            raise UserError(f"{shown}: given with --engine, whose file says what translates; leave one of them out")
    what = f"--engine: {name}"
    plain = Layers.read(Path(name), what=what).resolved(what=what)
    if (said := other_kind(plain, "engine", name)) is not None:
        raise UserError(f"{what}: {said}")
    file: EngineFile = parse_tree({"engine": plain}, EngineFile)
    return file.engine


def _of_run(run: str | None, given: Mapping[str, Any]) -> TranslationEngine:
    if run is None:
        raise UserError("RUN: none given; give a run's folder, or --engine FILE")
    fields = dict(given)
    runs = [run, *fields.pop("ensemble")]
    engine: TranslationEngine = make("translation_engine", "zeromt", runs=runs, **fields)
    return engine


def _files(input: Sequence[str | None] | None, input_list: str | None) -> list[Path]:
    """The files of the input, in order."""
    if (input is None) == (input_list is None):
        raise UserError("--input: give files by -i, or a file with their names by --input-list")
    if input_list is not None:
        with naming("--input-list"):
            names: Sequence[str | None] = [line for line in read_text(Path(input_list)).splitlines() if line.strip()]
    else:
        names = input or []
    files = [Path(name) for name in names if name is not None]
    if len(files) < len(names) or not all(map(Path.is_file, files)):
        wrong = next((str(path) for path in files if not path.is_file()), "-")
        raise UserError(f"--input: {wrong!r}: is no file; a corpus is read several times: give files that exist")
    if not files:
        raise UserError(f"--input-list: {input_list!r} names no file; give one a line")
    return files
