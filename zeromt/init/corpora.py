"""What of some files is a corpus: formats, columns, and the languages of both sides."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from configs import CorpusFiles, UserError
from configs.languages import MULTIPLE, is_known, language
from configs.process.text import visible_name
from data_pipeline.preparation.identification import NO_LANGUAGE, PY3LANGID, load_identifier
from data_pipeline.preparation.raw.compression import COMPRESSED
from data_pipeline.preparation.raw.fields import listed
from data_pipeline.preparation.raw.lines import (
    BYTE_ORDER_MARK,
    byte_lines,
    corpus_paths,
    decode_lines,
    unpacked_blocks,
)
from data_pipeline.preparation.readers.tmx import Tmx, read_units
from data_pipeline.preparation.readers.tsv import Tsv

HEAD_LINES = 2000
"""Lines, or units, at a file's beginning by which columns and languages are told."""
IDENTIFIED = 200
"""Lines by which a language is told: the longest of the head."""
SURE = 0.8
"""Fraction of lines in one language at which a side counts as being in it."""
TAGGED = re.compile(r">>([^<>\s]{1,32})<<\s*")
_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4}){0,2}")
_NO_CODES = frozenset(
    {
        "all", "bpe", "bz", "csv", "dev", "doc", "gz", "in", "low", "no", "of", "out", "raw", "ref", "src", "tab",
        "tgt", "the", "tmx", "to", "tok", "trg", "tsv", "tst", "txt", "val", "xz", "zst",
    }
)  # fmt: skip
"""Parts of files' names that are codes of languages too, and are not meant so. (Norwegian is `nb` or `nn`.)"""
_SETS = re.compile(r"(valid|validation|val|dev|test|tst|newstest|newsdev)(?![A-Za-z])", re.IGNORECASE)
"""Beginnings of the names of held-out sets."""
_SIDES = frozenset({"source", "target", "src", "tgt", "trg", "ref"})
_ALLOWED = "give two text files, a TSV, a TMX or a folder with such; docs/data.md has what `prepare` reads besides"
_NAME_THEM = "name them with --source-language and --target-language"


@dataclass(kw_only=True, frozen=True, slots=True)
class Part:
    """A file with both sides, or two parallel files."""

    files: CorpusFiles
    source_language: str | None
    """None where it is to be told by a sample of the text, as lines of several languages may be sorted."""
    target_language: str
    """`mul` where lines say their own."""
    how: str
    """How the languages are known, for a comment."""
    language_field: str | None = None
    """Column of a TSV with each line's target language."""
    is_tagged: bool = False
    """Whether source lines begin with tags of their target language."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The languages that the user named, or None."""

    source: str | None
    target: str | None


def find_parts(paths: Sequence[str], wanted: Wanted) -> tuple[list[Part], list[str]]:
    """The parts of a corpus in their order, and the names of files in a folder that are none.

    Raises:
        UserError: there is none, a file is of an unknown format or cannot be read, or its languages cannot be told.
    """
    _check_names(paths)
    parts, others = _found(paths, wanted)
    _check_names(str(path) for part in parts for path in corpus_paths(part.files, "."))
    return parts, others


def _check_names(names: Iterable[str]) -> None:
    """Refuse paths that a configuration cannot hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"CORPUS: {name!r}: is not UTF-8, which a configuration is; rename it") from error
        if "${" in name:
            raise UserError(f"CORPUS: {name}: has ${{, which a configuration replaces by a value; rename it")


def _found(paths: Sequence[str], wanted: Wanted) -> tuple[list[Part], list[str]]:
    given = [Path(path) for path in paths]
    if len(given) > 2:
        raise UserError(f"CORPUS: {len(given)} paths given; {_ALLOWED}")
    if len(given) == 1 and given[0].is_dir():
        return _of_folder(given[0], wanted)
    for path in given:
        if not path.is_file():
            raise UserError(f"CORPUS: {path}: is no file; it is read several times: {_ALLOWED}")
    if len(given) == 1:
        return [_of_one_file(given[0], wanted)], []
    if given[0].samefile(given[1]):
        raise UserError(f"CORPUS: {given[0]}: is both sides; give the file with the other language as well")
    named = [_language_of(path) for path in given]
    return [_of_two_files(given[0], given[1], (named[0], named[1]), wanted)], []


def _of_folder(folder: Path, wanted: Wanted) -> tuple[list[Part], list[str]]:
    """All corpora of a folder: TSV and TMX by their names, other files in pairs whose names differ in the language."""
    parts, groups, others = list[Part](), dict[str, dict[str, Path]](), list[str]()
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_file():
            continue
        if _SETS.match(path.name):  # one's own test set must not be trained on
            others.append(path.name)
        elif _ending(path) in (".tsv", ".tmx"):
            parts.append(_of_one_file(path, wanted))
        elif (code := _language_of(path)) is not None and _ending(path) != ".md":
            groups.setdefault(re.sub(rf"(?<![^._-]){code}(?![^._-])", "*", path.name), {})[code] = path
        else:
            others.append(path.name)
    pairs = [pair for group in groups.values() for pair in _paired(group, wanted)]
    shared = set[str].intersection(*({source, target} for source, target, _, _ in pairs)) if pairs else set[str]()
    is_one_pair = len({frozenset(pair[:2]) for pair in pairs}) == 1
    for source, target, one, other in pairs:
        turn = not is_one_pair and source not in shared and target in shared and wanted == Wanted(None, None)
        files, names = ((other, one), (target, source)) if turn else ((one, other), (source, target))
        parts.append(_of_two_files(*files, names, wanted))
    paired = {path for pair in pairs for path in pair[2:]}
    others += sorted(path.name for group in groups.values() for path in group.values() if path not in paired)
    if not parts:
        raise UserError(
            f"CORPUS: {folder}: has no .tsv, no .tmx and no two files such as a.en and a.cs "
            f"(its files: {listed(sorted(others))}); {_ALLOWED}"
        )
    return parts, others


def _paired(group: dict[str, Path], wanted: Wanted) -> Iterator[tuple[str, str, Path, Path]]:
    """Languages and files of the pairs among files that differ in their language, the source first."""
    codes = list(group)
    sources = [code for code in codes if wanted.source is None or _is_same(code, wanted.source)]
    for number, source in enumerate(sources):
        for target in codes:
            if _is_same(source, target) or (wanted.target is not None and not _is_same(target, wanted.target)):
                continue
            if wanted == Wanted(None, None) and (len(codes) > 2 or codes.index(target) < number):
                continue
            yield source, target, group[source], group[target]


def _of_two_files(source: Path, target: Path, named: tuple[str | None, str | None], wanted: Wanted) -> Part:
    heads = [_head(source), _head(target)]
    files = CorpusFiles(source=[str(source)], target=[str(target)])
    return _part(files, f"{source}, {target}", heads, named, wanted, "by the names of the files")


def _of_one_file(path: Path, wanted: Wanted) -> Part:
    ending = _ending(path)
    if ending == ".tmx" or (not ending and b"<tmx" in next(unpacked_blocks(path), b"")[:2000]):
        return _of_tmx(path, wanted)
    rows = [line.split("\t") for line in _head(path)]
    if ending not in (".tsv", ".tab", ".txt", "") or all(len(row) < 2 for row in rows):
        raise UserError(f"CORPUS: {path}: is neither TSV nor TMX; {_ALLOWED}")
    return _of_tsv(path, rows, wanted)


def _of_tmx(path: Path, wanted: Wanted) -> Part:
    """The unit's two languages, of which the source is the one that comes first."""
    codes, texts = dict[tuple[str, str | None], str](), dict[str, list[str]]()
    for unit in islice(read_units(path), HEAD_LINES):
        for code, text in unit.translations if unit is not None else ():
            kept = codes.setdefault(meaning(code), code)
            texts.setdefault(kept, []).append(text)
    found = list(codes.values())
    if wanted.source is not None and wanted.target is not None:
        found = [wanted.source, wanted.target]
    elif wanted.source is not None or wanted.target is not None:
        own = str(wanted.source or wanted.target)
        found = [code for code in found if not _is_same(code, own)]
        found = [own, *found] if wanted.source is not None else [*found, own]
    if len(found) != 2:
        has = f"languages {listed(found)}" if found else "no unit of a translation"
        raise UserError(f"CORPUS: {path}: has {has}, and two are needed; {_NAME_THEM}")
    heads = [[text for code, own in texts.items() if _is_same(code, name) for text in own] for name in found]
    files = CorpusFiles(files=[str(path)], reader=Tmx())
    return _part(files, str(path), heads, (found[0], found[1]), wanted, "by the codes in the file")


def _of_tsv(path: Path, rows: list[list[str]], wanted: Wanted) -> Part:
    """Two columns of text; others may hold a language, and are left alone if they hold numbers or ids."""
    width = min(map(len, rows))
    if width < 2:
        number = next(number for number, row in enumerate(rows, 1) if len(row) < 2)
        raise UserError(f"CORPUS: {path}: line {number} has one column; write a tab between source and target")
    first = [cell.strip().lower() for cell in rows[0][:width]]
    body = rows[1:] or rows
    columns = [[row[number].strip() for row in body] for number in range(width)]
    of_languages = [n for n in range(width) if width > 2 and _holds(columns[n], _is_code)]
    texts = [n for n in range(width) if n not in of_languages and (width == 2 or _holds(columns[n], _is_text, 0.3))]
    if len(texts) != 2:
        raise UserError(
            f"CORPUS: {path}: of its {width} columns {len(texts)} hold sentences, and two are needed; take two with "
            "`cut -f 1,2`"
        )
    names = [first[n] if is_code_of_name(first[n]) else None for n in texts]
    named, how = (names[0], names[1]), "by the header"
    has_header = all(first[n] in _SIDES or is_code_of_name(first[n]) for n in texts)
    if not has_header or None in named:
        named, how = _pair_in(path), "by the name of the file"
    by_line = _target_languages(of_languages, columns, texts)
    if by_line is not None:
        named = (named[0], MULTIPLE)
    if named[0] is None and (of_sources := [n for n in of_languages if n != by_line]):
        codes = set(columns[of_sources[0]])
        named, how = (codes.pop() if len(codes) == 1 else MULTIPLE, named[1]), "by the columns of languages"
    heads = [[row[n] for row in (body if has_header else rows)] for n in texts]
    reader = Tsv(source_field=texts[0] + 1, target_field=texts[1] + 1, header=has_header)
    files = CorpusFiles(files=[str(path)], reader=reader)
    return _part(files, str(path), heads, named, wanted, how, by_line)


def _target_languages(columns: Sequence[int], cells: Sequence[Sequence[str]], texts: Sequence[int]) -> int | None:
    """The column that says the language of the target: the last, or the one that its text agrees with."""
    if len(columns) != 1:
        return columns[-1] if columns else None
    agreed = [_agreement(cells[text], cells[columns[0]]) for text in texts]
    return None if agreed[0] > agreed[1] else columns[0]


def _agreement(texts: Sequence[str], codes: Sequence[str]) -> int:
    """How many texts are in the languages that stand beside them, as far as that can be told."""
    try:
        classify = load_identifier(PY3LANGID).classify
    except UserError:
        return 0
    longest = sorted(zip(texts, codes, strict=True), key=lambda pair: -len(pair[0]))[:IDENTIFIED]
    return sum(language(classify(text)[0]).code == language(code).code for text, code in longest)


def _part(
    files: CorpusFiles,
    where: str,
    heads: Sequence[Sequence[str]],
    named: tuple[str | None, str | None],
    wanted: Wanted,
    how: str,
    by_line: int | None = None,
) -> Part:
    """The part, once its languages are known and differ."""
    if not all(any(line.strip() for line in head) for head in heads):
        raise UserError(f"CORPUS: {where}: a side is blank; write a sentence a line on both sides")
    is_tagged = sum(map(bool, map(TAGGED.match, heads[0]))) > len(heads[0]) / 2
    field = None if by_line is None else str(by_line + 1)
    if is_tagged or field is not None:
        source = wanted.source or named[0]
        how = "as given" if wanted.source else how if source else "by the text"
        return Part(
            files=files,
            source_language=source,
            target_language=MULTIPLE,
            how=how,
            language_field=field,
            is_tagged=is_tagged,
        )
    seen = identified(heads[0]), identified(heads[1])
    source, target = wanted.source or named[0] or seen[0], wanted.target or named[1] or seen[1]
    if source is None or target is None:
        side = "source" if source is None else "target"
        raise UserError(f"CORPUS: {where}: the {side}'s language cannot be told; {_NAME_THEM}")
    if wanted.source is not None and wanted.target is not None:
        how = "as given"
    elif None in named:
        how = "by the text"
    else:
        _check_sides(where, (source, target), seen)
    if _is_same(source, target):
        raise UserError(
            f"CORPUS: {where}: both sides are in one language ({source}, {how}); give text in two, or {_NAME_THEM}"
        )
    return Part(files=files, source_language=source, target_language=target, how=how)


def _check_sides(where: str, named: tuple[str, str], seen: tuple[str | None, str | None]) -> None:
    """Refuse sides whose text is not what the names say.

    Raises:
        UserError: both are in one language, or they are exchanged.
    """
    if None in seen:
        return
    if seen[0] == seen[1]:
        raise UserError(
            f"CORPUS: {where}: both sides are in one language ({seen[0]}, by the text); give text in two, or "
            f"{_NAME_THEM}"
        )
    if _is_same(named[0], str(seen[1])) and _is_same(named[1], str(seen[0])):
        raise UserError(
            f"CORPUS: {where}: the source is {seen[0]} and the target {seen[1]} by the text, and the names say "
            f"{named[0]} and {named[1]}; exchange them, or {_NAME_THEM}"
        )


def identified(lines: Sequence[str]) -> str | None:
    """The language of nearly all lines; None if there is none, or no package to tell it."""
    try:
        classify = load_identifier(PY3LANGID).classify
    except UserError:
        return None
    longest = sorted(lines, key=len, reverse=True)[:IDENTIFIED]
    counts = Counter(classify(line[:500])[0] for line in longest)
    code, count = counts.most_common(1)[0]
    return code if count >= SURE * len(longest) and code not in NO_LANGUAGE else None


def _head(path: Path) -> list[str]:
    """The first lines of a text file."""
    lines = list(islice(byte_lines(path), HEAD_LINES))
    first, *others = decode_lines(path, b"\n".join([*lines, b""]), range(1, len(lines) + 1))
    return [first.removeprefix(BYTE_ORDER_MARK), *others]


def _ending(path: Path) -> str:
    """The suffix of a file's name that says its format, but for its compression."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _language_of(path: Path) -> str | None:
    """The code of a language in a file's name, the last if there are several."""
    name = path.with_suffix("").name if path.suffix.lower() in COMPRESSED else path.name
    found = (part for split in (r"\.", r"[._-]") for part in reversed(re.split(split, name)) if is_code_of_name(part))
    return next(found, None)


def _pair_in(path: Path) -> tuple[str | None, str | None]:
    """Both codes in a name such as `news.en-cs.tsv`."""
    for part in reversed(path.name.split(".")):
        codes = re.split(r"[-_]", part)
        for one, other in pairwise(codes):
            if is_code_of_name(one) and is_code_of_name(other) and not _is_same(one, other):
                return one, other
    return None, None


def is_code_of_name(text: str) -> bool:
    """Whether a part of a name, or a cell of a header, is meant as the code of a language."""
    return text.lower() not in _NO_CODES and _is_code(text)


def _is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None and is_known(text)


def _is_text(text: str) -> bool:
    """Whether a cell may be a sentence, and no number, id or address."""
    return (" " in text or not text.isascii()) and any(map(str.isalpha, text))


def _is_same(one: str, other: str) -> bool:
    return meaning(one) == meaning(other)


def meaning(code: str) -> tuple[str, str | None]:
    """What a code means here: a language in a script, whatever its territory."""
    return language(code).code, language(code).script


def _holds(cells: Iterable[str], what: object, least: float = 0.95) -> bool:
    """Whether at least this fraction of the cells is what a function says."""
    assert callable(what)
    flags = [bool(what(cell)) for cell in cells]
    return sum(flags) >= least * max(1, len(flags))


def shown(path: object) -> str:
    """A path for a comment or a message."""
    return visible_name(str(path))
