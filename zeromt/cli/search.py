"""`zeromt help WORD ...`: settings, kinds, options, commands and terms that have these words, the best first."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.components import kinds
from configs.components.registry import FAMILIES
from configs.errors import UserError
from configs.other_tools import MEANT
from configs.reading.meanings import fields, text
from launcher.options.command import Command
from launcher.options.parser import OPTIONS, Parser

GLOSSARY = Path(__file__).with_name("glossary.txt")
"""docs/glossary.md, here so that a wheel has it."""
SHOWN = 16
"""Most lines of an answer."""
FEW = 8
"""With fewer that have all the words, those follow that have some of them in their names."""
_WIDTH = 120
_IN_NAME, _ELSEWHERE, _IN_PATH, _IN_MEANING, _BEGINS, _TOGETHER = 8, 6, 4, 3, 1, 4
"""What a word counts by where it stands; and what several count that stand together."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Entry:
    """What can be asked for."""

    name: str
    """As `zeromt help` takes it."""
    what: str
    """A setting, an option, a command, a term of the glossary; or the family of a kind."""
    meaning: str
    elsewhere: str = ""
    """Other programs' words for it, with commas between."""


def answer(commands: Mapping[str, Command], words: Sequence[str], others: Mapping[str, str]) -> str:
    """All that is known of a setting that is named by its name; else what kinds and terms say, and what is found.

    Args:
        commands: all, by name.
        words: that were asked for.
        others: other programs' commands, each with what to use here, which names a command of ours.

    Raises:
        UserError: nothing has any of these words.
    """
    name = " ".join(words)
    if len(words) == 1 and (setting := text(name.replace("[N]", ""))):
        return setting
    known = list(entries(commands, others))
    found = search(known, _words(name))
    if not found:
        raise UserError(_unknown(name, known))
    named = [*_kinds_named(name), *_terms_named(name)]
    further = [one for one in found if not named or one.name != name or one.what not in (*FAMILIES, "term")]
    return "\n\n".join("\n".join(block) for block in (named, list(_listed(further))) if block)


def search(known: Iterable[Entry], wanted: Sequence[str]) -> list[Entry]:
    """What has all the words, the best first; of few or none, then what has some of them in its name."""
    scored = [(entry, _scores(entry, wanted)) for entry in known]
    counts = {id(entry): sum(map(bool, scores)) for entry, scores in scored}
    best = sorted(
        scored,
        key=lambda one: (
            -counts[id(one[0])],
            -sum(one[1]) - _TOGETHER * _stand_together(one[0], " ".join(wanted)),
            len(_words(one[0].name)),
        ),
    )
    whole = [entry for entry, _ in best if counts[id(entry)] == len(wanted) > 0]
    partly = [entry for entry, scores in best if 0 < counts[id(entry)] < len(wanted) and max(scores) >= _IN_NAME]
    return whole if len(whole) >= FEW else [*whole, *partly[: FEW - len(whole)]]


def entries(commands: Mapping[str, Command], others: Mapping[str, str]) -> Iterator[Entry]:
    """Everything that can be asked for: settings, kinds, commands, their options, terms. For `others` see `answer`."""
    yield from _settings()
    for family in FAMILIES:
        for kind, component in kinds(family).items():
            yield Entry(name=kind, what=family, meaning=_first_line(component))
    typed = _by_what_is_here(others)
    for name, command in commands.items():
        yield Entry(name=name, what="command", meaning=command.summary, elsewhere=", ".join(typed.get(name, ())))
    yield from _options(commands)
    yield from terms()


def terms() -> Iterator[Entry]:
    """The terms of the glossary."""
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "term":
            yield Entry(name=cells[0], what="term", meaning=cells[1], elsewhere=cells[2])


def _settings() -> Iterator[Entry]:
    """Each setting once: those of a phase mean what they mean elsewhere, and so do those of several kinds."""
    typed = _by_what_is_here(MEANT)
    seen: dict[tuple[str, ...], tuple[str, str]] = {}
    for field in fields():
        path = field.path.replace("[N]", "")
        key = (*path.split(".")[-2:], field.meaning)
        if key not in seen or path.count(".") < seen[key][0].count("."):
            seen[key] = path, field.meaning
    for path, meaning in seen.values():
        yield Entry(name=path, what="setting", meaning=meaning, elsewhere=", ".join(typed.get(path, ())))


def _options(commands: Mapping[str, Command]) -> Iterator[Entry]:
    """Each option once, under the first command that has it; what looks into runs takes many of the others' too."""
    typed = _by_what_is_here(OPTIONS)
    seen = set()
    for name, command in sorted(commands.items(), key=lambda item: item[1].group == "look into a run"):
        parser = Parser(prog=name, add_help=False)
        command.add_arguments(parser)
        for action in parser._actions:
            if not action.option_strings or (key := (action.option_strings[-1], action.help)) in seen:
                continue
            seen.add(key)
            elsewhere = ", ".join(typed.get(key[0], ()))
            yield Entry(name=f"{name} {key[0]}", what="option", meaning=action.help or "", elsewhere=elsewhere)


def _by_what_is_here(table: Mapping[str, str]) -> dict[str, list[str]]:
    """Other programs' words by the settings, options or commands of ours that a table's advice names."""
    by_name: dict[str, list[str]] = {}
    for word, here in table.items():
        commands = re.findall(r"(?:`zeromt|did you mean) ([a-z]+)", here)
        for name in commands[:1] or re.findall(r"--[a-z-]+|[a-z_0-9]+(?:\.[a-z_0-9]+)+|^[a-z_]+$", here):
            by_name.setdefault(name, []).append(word)
    return by_name


def _scores(entry: Entry, wanted: Sequence[str]) -> list[int]:
    """For each word how well an entry has it; 0 where it has not."""
    path, elsewhere, meaning = _words(entry.name), _words(entry.elsewhere), _words(entry.meaning)
    name = _words(entry.name.rpartition(" " if entry.what in ("option", "command") else ".")[2])
    places = ((name, _IN_NAME), (elsewhere, _ELSEWHERE), (path, _IN_PATH), (meaning, _IN_MEANING))
    begins = {word[: len(one)] for one in wanted if len(one) > 2 for word in (*path, *elsewhere, *meaning)}
    return [next((score for words, score in places if one in words), _BEGINS if one in begins else 0) for one in wanted]


def _stand_together(entry: Entry, wanted: str) -> bool:
    """Whether several words stand together in a name, a meaning, or one of the words of others."""
    places = [entry.name, entry.meaning, *entry.elsewhere.split(",")]
    return " " in wanted and any(f" {wanted} " in f" {' '.join(_words(place))} " for place in places)


def _words(text: str) -> list[str]:
    """The words of a text in lower case, without the s of a plural."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]


def _kinds_named(name: str) -> Iterator[str]:
    """What the components of this kind say of themselves, and their own fields."""
    for family in FAMILIES:
        if (component := kinds(family).get(name)) is not None:
            choices = f"kind: {' | '.join(kinds(family))}"
            places = [field.path.replace("[N]", "") for field in fields() if choices in field.type]
            place = min(places, key=lambda path: path.count("."), default=family)
            yield f"  {place}: {name}"
            yield f"      {_first_line(component)}"
            yield text(place, kind=name)


def _terms_named(name: str) -> Iterator[str]:
    """What the glossary says of a term."""
    for term in terms():
        if term.name.partition(" (")[0].lower() == name.lower():
            elsewhere = f" (elsewhere: {term.elsewhere})" if term.elsewhere else ""
            yield f"  {term.name}: {term.meaning}{elsewhere}"


def _listed(found: Sequence[Entry]) -> Iterator[str]:
    """A line for each, and what to type next."""
    if not (shown := found[:SHOWN]):
        return
    names, whats = (max(map(len, column)) for column in zip(*((one.name, one.what) for one in shown), strict=True))
    for entry in shown:
        line = f"  {entry.name:{names}}  {entry.what:{whats}}  {entry.meaning or entry.elsewhere}"
        yield line if len(line) <= _WIDTH else f"{line[: _WIDTH - 4].rsplit(' ', 1)[0]} ..."
    yield ""
    more = f"{len(found) - len(shown)} more: add a word. " if len(found) > len(shown) else ""
    best = next((one.name for one in shown if one.what != "term"), None)
    if best is not None:
        yield f"{more}`zeromt help {best}` says all of it; so do the other names."


def _unknown(name: str, known: Iterable[Entry]) -> str:
    words = {word for entry in known for word in _words(f"{entry.name} {entry.elsewhere}")}
    near = [one for word in _words(name) for one in difflib.get_close_matches(word, words, n=3, cutoff=0.7)]
    meant = f"did you mean {', '.join(dict.fromkeys(near))}?" if near else "`zeromt help` lists commands"
    return f"WORD: {name!r}: no setting, kind, command, option or term has it; {meant}"


def _first_line(component: type) -> str:
    return (component.__doc__ or "").strip().partition("\n")[0]
