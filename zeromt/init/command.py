"""The command `zeromt init`: looks at a corpus, writes held-out sets and a configuration, and says what it did."""

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from configs import UserError
from configs.languages import MULTIPLE
from configs.process.files import check_apart, exists, file_in, naming
from configs.process.files.inside import written
from configs.process.text import visible_name
from zeromt.init.choices import Machine, choose
from zeromt.init.corpora import Part, Wanted, find_parts, identified, meaning
from zeromt.init.page import Outcome, page, summary
from zeromt.init.survey import Found, Pair, look, training_rows

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.ya?ml")
_OUTPUT = "-o/--output"


def run(
    *,
    corpus: Sequence[str],
    output: str,
    source_language: str | None,
    target_language: str | None,
    overwrite: bool,
) -> int:
    """Write a configuration for a corpus, and its held-out sets.

    Args:
        corpus: two files, or one file or folder.
        output: the configuration to write.
        source_language, target_language: codes; None tells them by names and text.
        overwrite: replace what is there.

    Raises:
        UserError: the corpus cannot be used as it is, or the output is there or cannot be written.
    """
    folder = _folder_beside(output, overwrite=overwrite)
    inputs = {f"CORPUS {number}": path for number, path in enumerate(corpus, 1)}
    check_apart(inputs, {_OUTPUT: output, f"{_OUTPUT} (held-out sets)": str(folder)})
    parts, others = find_parts(corpus, Wanted(source_language, target_language))
    found, machine = look(parts), Machine.here()
    told = identified([pair.source for pair in found.sample]) or MULTIPLE
    languages = (
        _one_of(part.source_language or told for part in parts),
        _one_of(found.codes or [part.target_language for part in parts]),
    )
    endings = languages if languages[0] != languages[1] else ("source", "target")
    as_they_are = None if found.is_tagged else _joined(parts)
    outcome = Outcome(
        given=corpus,
        output=output,
        folder=folder,
        endings=endings,
        train=as_they_are,
        parts=parts,
        others=others,
        found=found,
        languages=languages,
        machine=machine,
        choices=choose(found, languages, machine),
    )
    with written(output, _OUTPUT) as file:
        _write_sets(folder, endings, found, parts if as_they_are is None else ())
        file.write(page(outcome))
    for line in summary(outcome):
        print(line)
    return 0


def _folder_beside(output: str, *, overwrite: bool) -> Path:
    """The folder of the held-out sets.

    Raises:
        UserError: the output's name is none for a configuration, or there is something already.
    """
    path, shown = Path(output), visible_name(output)
    if not _NAME.fullmatch(path.name):
        raise UserError(
            f"{_OUTPUT}: {shown}: the run gets its name; give letters, digits, dots, hyphens and .yaml, such as my.yaml"
        )
    folder = path.with_name(f"{path.stem}-data")
    with naming(_OUTPUT):
        there = next((one for one in (path, folder) if exists(one)), None)
        is_writable = path.parent.is_dir() and not (exists(folder) and not folder.is_dir())
    if there is not None and not overwrite:
        raise UserError(f"{_OUTPUT}: {visible_name(str(there))} is there; give another name, or --overwrite")
    if not is_writable:
        raise UserError(f"{_OUTPUT}: {shown} cannot be written; give a file in a folder that exists")
    return folder


def _one_of(codes: Iterable[str]) -> str:
    """The only code, or the first of several that mean the same; else that for several languages."""
    listed = list(codes)
    return listed[0] if len(set(map(meaning, listed))) == 1 else MULTIPLE


def _joined(parts: Sequence[Part]) -> dict[str, Any] | None:
    """The files of all parts as `prepare.train`; None if they are of several formats or columns."""
    reader = parts[0].files.reader
    if any(part.files.reader != reader for part in parts):
        return None
    if reader.kind == "tmx" and len({(part.source_language, part.target_language) for part in parts}) > 1:
        return None
    tree: dict[str, Any] = {
        key: [path for part in parts for path in getattr(part.files, key)] for key in ("source", "target", "files")
    }
    if reader.kind != "text":
        given = {one.name: getattr(reader, one.name) for one in fields(reader)}
        tree["reader"] = {one.name: given[one.name] for one in fields(reader) if given[one.name] != one.default}
        tree["reader"]["kind"] = reader.kind
    return {key: value for key, value in tree.items() if value}


def _write_sets(folder: Path, endings: tuple[str, str], found: Found, parts: Sequence[Part]) -> None:
    """Write the held-out sets, and with parts the training text: with tags, without the held-out sentences."""
    sets: dict[str, Iterable[Pair]] = {"valid": found.valid, "test": found.test}
    if parts:
        sets["train"] = training_rows(found, parts)
    with naming(_OUTPUT):
        paths = {name: [str(file_in(folder, f"{name}.{ending}")) for ending in endings] for name in sets}
        folder.mkdir(exist_ok=True)
    for name, pairs in sets.items():
        with ExitStack() as stack:
            files = [stack.enter_context(written(path, _OUTPUT)) for path in paths[name]]
            for source, target, code in pairs:
                files[0].write(f">>{code}<< {source}\n" if code else f"{source}\n")
                files[1].write(f"{target}\n")
