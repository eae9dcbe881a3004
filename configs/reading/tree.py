"""Merges YAML files and `section.key=value` settings into one tree, before its types are checked."""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError
from yaml.error import MarkedYAMLError
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from configs.errors import UserError
from configs.process.files.inside import read_bytes
from configs.process.text import shortened
from configs.reading.interpolations import as_plain_text, check_interpolations, leaves, variables
from configs.reading.scalars import Place, Texts, texts_of

_PARTS = ("attention", "feed_forward", "initialisation", "norm", "positions", "residual")
_WORD = re.compile(r"(\[)?([^.\[\]]+)\]?\.?")
_KEY = re.compile(r"[^.\[\]]+(?:\[[^.\[\]]+\]|\.[^.\[\]]+)*")
_UNREADABLE = (OmegaConfBaseException, YAMLError, ValueError, TypeError, OSError, RecursionError)
"""Errors of reading: of YAML, of interpolations, of numbers with thousands of digits, of lists as keys."""


@dataclass(slots=True)
class Tree:
    """The values given so far, and how plain scalars in them were written."""

    node: DictConfig
    texts: Texts
    leftovers: set[Place] = field(default_factory=set)
    """Fields of a component whose kind a higher layer has changed; those that the new kind lacks are dropped."""

    @classmethod
    def empty(cls) -> "Tree":
        """A tree without values."""
        return cls(OmegaConf.create({}), {})

    @classmethod
    def read(cls, path: Path, *, what: str, is_saved: bool = False) -> "Tree":
        """Read a YAML file: UTF-8, or UTF-16 with a byte order mark; YAML 1.1, with the exceptions in `scalars.py`.

        Args:
            path: path of the file.
            what: beginning of error messages.
            is_saved: zeromt wrote it, perhaps a stranger's: `${...}` is plain text.

        Raises:
            UserError: the file cannot be read, is not a mapping, or has an interpolation that is not allowed.
        """
        text = ""
        try:
            text = _decoded(read_bytes(path) if is_saved else path.read_bytes())
            node = OmegaConf.load(io.StringIO(text))
            if not isinstance(node, DictConfig) or _is_text(node, text):
                raise UserError(f"{what}: is not a mapping; write lines such as `key: value`")
            values = cast("dict[str, Any]", OmegaConf.to_container(node, resolve=False))
            values = as_plain_text(values, is_raw=True) if is_saved else values
            check_interpolations(values, what=what)
            tree = cls.empty()
            tree._add(values, texts_of(text))
            return tree
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error, text)}") from error

    def put(self, item: str, *, what: str = "override") -> None:
        """Apply one setting `section.key=value`. The value is YAML; `list[0]` and `list.0` are an item of a list, and
        `section={}` is a section without what was given in it before.

        Raises:
            UserError: the text is not such a setting, or its key is an item beyond the end of a list.
        """
        key, separator, text = item.partition("=")
        shown = repr(shortened(item))
        if not separator or not _KEY.fullmatch(key):
            raise UserError(f"{what}: {shown}; allowed is section.key=value{_instead(item)}")
        if text.strip() == "~":  # null in YAML, but the user means the home folder; null can be written as nothing
            text = "'~'"
        try:
            value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
            place, tree = self._place(key), cast("dict[str, Any]", value)["value"]
            check_interpolations(tree, what=f"{what}: {shown}", at=place)
            texts = texts_of(text)
        except _UNREADABLE as error:
            raise UserError(f"{what}: {shown}: the value is not valid YAML; if it is text, put it in quotes") from error
        try:
            if tree == {} and OmegaConf.is_dict(OmegaConf.select(self.node, dotted(place), default=None)):
                OmegaConf.update(self.node, dotted(place), None)  # merged with {} it would stay what it is
            asked = _asked(place, tree) if any(isinstance(step, int) for step in place) else None
            self._add(self._nested(place, tree), {place + p: t for p, t in texts.items()}, at=place, asked=asked)
        except IndexError as error:
            raise UserError(f"{what}: {shown}: {error}") from error
        except _UNREADABLE as error:
            raise UserError(f"{what}: {shown}: cannot be set: {_line(error)}") from error

    def put_values(self, values: dict[str, Any]) -> None:
        """Set values given as nested dictionaries."""
        self._add(values, {})

    def take(self, key: str, *, what: str) -> Any:
        """Remove a top-level key and return its value; None if it is missing.

        Raises:
            UserError: the value is an interpolation of a missing key.
        """
        try:
            return self.node.pop(key, None)
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error)}") from error

    def take_plain(self, key: str, default: Any, *, what: str) -> Any:
        """Like `take`, as plain dictionaries, lists and text; the default if the key is missing.

        Raises:
            UserError: the value has an interpolation of a missing key.
        """
        if key not in self.node:
            return default
        try:
            node = OmegaConf.create({"taken": self.node._get_node(key)})
            value = cast("dict[str, Any]", OmegaConf.to_container(node, resolve=True))["taken"]
            self.node.pop(key, None)
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error)}") from error
        return value

    def put_below(self, lower: "Tree", *, what: str) -> None:
        """Add the values of another tree for keys that are not given here.

        Raises:
            UserError: an interpolation cannot be merged with a value of another type.
        """
        try:
            below, above = (OmegaConf.to_container(tree, resolve=False) for tree in (lower.node, self.node))
            self.leftovers |= set(_leftovers(below, above))
            self.node = _merged(lower.node, self.node)
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error)}") from error

    def plain(self, *, what: str) -> dict[str, Any]:
        """The values as dictionaries, lists, text, numbers and None, with interpolations resolved.

        Raises:
            UserError: an interpolation refers to a missing key, or a value has another type.
        """
        try:
            tree = OmegaConf.to_container(self.node, resolve=True)
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error)}") from error
        for place, value in leaves(tree):
            if not isinstance(value, str | int | float | None):
                kind = type(value).__name__
                raise UserError(f"{what}: {dotted(place)}: {value!r} is {kind}; allowed is text, a number or a list")
            if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
                raise UserError(f"{what}: {dotted(place)}: {value!r} is not valid Unicode; allowed is UTF-8")
        return cast("dict[str, Any]", tree)

    def variables(self) -> dict[Place, str]:
        """The places of values that are not saved, and what is saved for them: see `interpolations.variables`."""
        return variables(self.node)

    def _place(self, key: str) -> Place:
        """The place of a key: names, and indices where there is a list or where brackets ask for one."""
        place: Place = ()
        at: Any = OmegaConf.to_container(self.node, resolve=False)
        for bracket, word in _WORD.findall(key):
            is_list = isinstance(at, list) or (bool(bracket) and not isinstance(at, dict))
            place += (int(word) if is_list and word.isdecimal() else word,)
            at = _item(at, place[-1])
        return place

    def _nested(self, place: Place, value: Any) -> dict[str, Any]:
        """A value in nested dictionaries at a place; a list on the way is included as a whole."""
        first = next((n for n, step in enumerate(place) if isinstance(step, int)), len(place))
        if first < len(place):
            above = dotted(place[:first])
            there = OmegaConf.select(self.node, above, default=None)
            content = OmegaConf.to_container(there, resolve=False) if OmegaConf.is_config(there) else there
            value = _with(content, place[first:], value, above)
        return _asked(place[:first], value)

    def _add(self, values: dict[str, Any], texts: Texts, at: Place = (), asked: dict[str, Any] | None = None) -> None:
        """Merge values into the tree, replacing earlier ones.

        Args:
            values: nested dictionaries.
            texts: how plain scalars in them were written.
            at: place that contains all of the values.
            asked: the values without the rest of a list of which they set an item, whose index is then a key.
        """
        texts = {place_in(values, place): text for place, text in texts.items()}
        values, at = with_sections(values), place_in(values, at)
        asked = values if asked is None else asked
        lower = OmegaConf.to_container(self.node, resolve=False)
        self.leftovers = (self.leftovers - set(_places(asked))) | set(_leftovers(lower, asked))
        self.node = _merged(self.node, OmegaConf.create(values))
        if at:
            self.texts = {p: t for p, t in self.texts.items() if p[: len(at)] != at}
        self.texts |= texts


def dotted(place: Place) -> str:
    """`section.list.0`."""
    return ".".join(map(str, place))


def _decoded(content: bytes) -> str:
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def _line(error: BaseException, text: str = "") -> str:
    """An error as one line.

    Args:
        error: of reading.
        text: what was read.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"{error}; allowed is UTF-8"
    problem = getattr(error, "problem", None) or ""
    is_marked = isinstance(error, ScannerError | ParserError) or problem.startswith("found duplicate key")
    if not is_marked or not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark, lines = error.problem_mark, [*text.splitlines(), ""]
    line = lines[min(mark.line, len(lines) - 1)]
    if isinstance(error, ScannerError) and "\t" in line[: len(line) - len(line.lstrip())]:
        return f"a tab in line {mark.line + 1}: use spaces"
    if problem.startswith("found duplicate key"):
        return f"{problem.removeprefix('found ')} in line {mark.line + 1}: keep one of the two"
    begin = error.context_mark
    flow = (error.context or "").startswith("while parsing a flow") and begin is not None
    advice = f", for the bracket that opens in line {begin.line + 1}" if flow and begin is not None else ""
    if advice and begin is not None and "#" in lines[min(begin.line, len(lines) - 1)]:
        advice += "; a # in brackets ends the line"
    if problem == "mapping values are not allowed in this context":
        advice = "; indent it as the line before, and write one key a line, or {a: 1, b: 2}"
    shown = f": {shortened(line.strip())!r}" if line.strip() else ""
    return f"line {mark.line + 1}, column {mark.column + 1}{shown}: {problem}{advice}"


def _instead(item: str) -> str:
    """What a word that sets nothing may have meant."""
    if item.endswith((".yaml", ".yml")):
        return ", behind one YAML file"
    if (colon := re.match(r"([a-z_]+(?:\.[a-z_0-9]+)+):\s*(\S+)$", item)) is not None:
        return f": {colon[1]}={colon[2]}"
    return f": {item}=VALUE, without a space" if re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", item) else ""


def _is_text(node: DictConfig, text: str) -> bool:
    """Whether the file is a line or lines of text, which OmegaConf takes as a key without a value."""
    return len(node) == 1 and not re.search(r":(\s|$)|^\s*[{?]", text) and next(iter(node.values())) is None


def _item(tree: Any, step: str | int) -> Any:
    if isinstance(tree, dict):
        return tree.get(step)
    if isinstance(tree, list) and isinstance(step, int) and step < len(tree):
        return tree[step]
    return None


def _with(tree: Any, place: Place, value: Any, where: str) -> Any:
    """A copy of a list, or of one of its items, with a value at a place in it.

    Raises:
        IndexError: the place is beyond the end of a list, or there is no list.
    """
    if not place:
        return {**_section(tree), **value} if isinstance(tree, dict | str) and isinstance(value, dict) else value
    step, rest = place[0], place[1:]
    if isinstance(step, str):
        inner = _section(tree) if isinstance(tree, dict | str) else {}
        return {**inner, step: _with(inner.get(step), rest, value, f"{where}.{step}")}
    items = [] if tree is None else tree
    if not isinstance(items, list):
        raise IndexError(f"{where} is not a list; use {where}=VALUE")
    if step > len(items):
        raise IndexError(f"{where} has {len(items)} items; use an index from 0 to {len(items)}; {len(items)} adds one")
    changed = _with(items[step] if step < len(items) else None, rest, value, f"{where}.{step}")
    return [*items[:step], changed, *items[step + 1 :]]


def _merged(lower: DictConfig, higher: DictConfig) -> DictConfig:
    """Both trees merged; the higher one's values win. A list and a section are not merged: the higher one replaces."""
    below, above = (OmegaConf.to_container(tree, resolve=False) for tree in (lower, higher))
    return cast(DictConfig, OmegaConf.merge(OmegaConf.create(_fitting(below, above, lower)), higher))


def _fitting(lower: Any, higher: Any, node: DictConfig, place: Place = ()) -> Any:
    """The lower tree as it can be merged: a kind alone is a section where the higher tree has one.

    It is without lists where the higher one has a section, and without sections where that has a list.

    Args:
        lower: plain.
        higher: plain.
        node: the whole lower tree.
        place: of these values in it.
    """
    if isinstance(lower, str) and isinstance(higher, dict) and not _is_section(node, place):
        return _section(lower)
    if not (isinstance(lower, dict) and isinstance(higher, dict)):
        return lower

    def clashes(key: Any) -> bool:
        kinds = {type(tree[key]) for tree in (lower, higher)}
        return key in higher and kinds == {dict, list}

    kept = {k: v for k, v in lower.items() if k not in higher or not clashes(k)}
    return {k: _fitting(v, higher.get(k), node, (*place, k)) for k, v in kept.items()}


def _is_section(node: DictConfig, place: Place) -> bool:
    """Whether text refers to a section, `${phases.0.schedule}`."""
    try:
        return OmegaConf.is_config(OmegaConf.select(node, dotted(place)))
    except OmegaConfBaseException:  # to what a layer below may have
        return False


def _section(value: Any) -> Any:
    """A kind alone, `schedule: cosine`, as a section; sections as they are."""
    return {"kind": value} if isinstance(value, str) else value


def _leftovers(lower: Any, higher: Any, place: Place = ()) -> Iterator[Place]:
    """Fields that only the lower tree has, in sections where the higher one has another `kind`."""
    lower = dict(enumerate(lower)) if isinstance(lower, list) else lower
    if not (isinstance(lower, dict) and isinstance(higher, dict)):
        return
    if higher.get("kind", lower.get("kind")) != lower.get("kind"):
        yield from ((*place, key) for key in lower if key not in higher)
    for key in lower.keys() & higher.keys():
        yield from _leftovers(lower[key], higher[key], (*place, key))


def _asked(place: Place, value: Any) -> dict[str, Any]:
    """A value in nested dictionaries at a place, in which an item of a list has its index as key."""
    for step in reversed(place):
        value = {step: value}
    return cast("dict[str, Any]", value)


def _places(tree: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all sections and leaves."""
    yield place
    tree = dict(enumerate(tree)) if isinstance(tree, list) else tree
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield from _places(value, (*place, key))


def with_sections(tree: dict[str, Any]) -> dict[str, Any]:
    """A layer in which each part of the model that is a kind alone (`model.norm: rms`) is a section with this kind.

    So `model.norm=rms` changes the kind, and the fields that a preset or the file sets stay.
    """
    model = tree.get("model")
    if not isinstance(model, dict):
        return tree
    alone = {part: {"kind": model[part]} for part in _PARTS if isinstance(model.get(part), str)}
    return {**tree, "model": {**model, **alone}} if alone else tree


def place_in(tree: dict[str, Any], place: Place) -> Place:
    """Where the value at a place of the layer is after `with_sections`: that of a kind alone is one step deeper.

    Args:
        tree: the layer as it was given.
        place: of a value in it, or of all that is in it.
    """
    model = tree.get("model")
    is_alone = len(place) == 2 and place[0] == "model" and place[1] in _PARTS
    return (*place, "kind") if is_alone and isinstance(model, dict) and isinstance(model.get(place[1]), str) else place
