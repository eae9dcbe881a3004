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

from configs.errors import UserError
from configs.reading.old_keys import OldKey, moved
from configs.reading.scalars import Place, Texts, texts_of

_WORD = re.compile(r"(\[)?([^.\[\]]+)\]?\.?")
_KEY = re.compile(r"[^.\[\]]+(?:\[[^.\[\]]+\]|\.[^.\[\]]+)*")
_SHOWN_CHARACTERS = 200
"""Maximum length of a setting in a message."""
_UNREADABLE = (OmegaConfBaseException, YAMLError, ValueError, TypeError, OSError, RecursionError)
"""Errors of reading: of YAML, of interpolations, of numbers with thousands of digits, of lists as keys."""


@dataclass(slots=True)
class Tree:
    """The values given so far, and how plain scalars in them were written."""

    node: DictConfig
    texts: Texts
    old_keys: tuple[OldKey, ...] = ()
    """The table of old keys, whose values are moved to today's keys."""
    said: list[str] = field(default_factory=list)
    """A line for each old key whose new name the user is to be told."""
    leftovers: set[Place] = field(default_factory=set)
    """Fields of a component whose kind a higher layer has changed; those that the new kind lacks are dropped."""

    @classmethod
    def empty(cls, *, old_keys: tuple[OldKey, ...] = ()) -> "Tree":
        """A tree without values."""
        return cls(OmegaConf.create({}), {}, old_keys)

    @classmethod
    def read(cls, path: Path, *, what: str, old_keys: tuple[OldKey, ...] = ()) -> "Tree":
        """Read a YAML file: UTF-8, or UTF-16 with a byte order mark; YAML 1.1, with the exceptions in `scalars.py`.

        Args:
            path: path of the file.
            what: beginning of error messages.
            old_keys: see `Tree`.

        Raises:
            UserError: the file cannot be read, or is not a mapping.
        """
        try:
            text = _decoded(path.read_bytes())
            node = OmegaConf.load(io.StringIO(text))
            if not isinstance(node, DictConfig):
                raise UserError(f"{what}: is not a mapping; write lines such as `key: value`")
            tree = cls(OmegaConf.create({}), {}, old_keys)
            tree._add(cast("dict[str, Any]", OmegaConf.to_container(node, resolve=False)), texts_of(text))
            return tree
        except _UNREADABLE as error:
            raise UserError(f"{what}: cannot be read: {_line(error)}") from error

    def put(self, item: str, *, what: str = "override") -> None:
        """Apply one setting `section.key=value`. The value is YAML; `list[0]` and `list.0` are an item of a list.

        Raises:
            UserError: the text is not such a setting, or its key is an item beyond the end of a list.
        """
        key, separator, text = item.partition("=")
        shown = repr(item if len(item) <= _SHOWN_CHARACTERS else f"{item[:_SHOWN_CHARACTERS]}...")
        if not separator or not _KEY.fullmatch(key):
            raise UserError(f"{what}: {shown}; allowed is section.key=value")
        if text.strip() == "~":  # null in YAML, but the user means the home folder; null can be written as nothing
            text = "'~'"
        try:
            value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
            place, tree = self._place(key), cast("dict[str, Any]", value)["value"]
            texts = texts_of(text)
        except _UNREADABLE as error:
            raise UserError(f"{what}: {shown}: the value is not valid YAML; if it is text, put it in quotes") from error
        try:
            self._add(self._nested(place, tree), {place + p: t for p, t in texts.items()}, at=place)
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
        for place, value in _leaves(tree):
            if not isinstance(value, str | int | float | None):
                kind = type(value).__name__
                raise UserError(f"{what}: {dotted(place)}: {value!r} is {kind}; allowed is text, a number or a list")
            if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
                raise UserError(f"{what}: {dotted(place)}: {value!r} is not valid Unicode; allowed is UTF-8")
        return cast("dict[str, Any]", tree)

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
        for step in reversed(place[:first]):
            value = {step: value}
        return cast("dict[str, Any]", value)

    def _add(self, values: dict[str, Any], texts: Texts, at: Place = ()) -> None:
        """Merge values into the tree, replacing earlier ones.

        Args:
            values: nested dictionaries.
            texts: how plain scalars in them were written.
            at: place that contains all of the values.
        """
        if self.old_keys:
            renewed = moved(values, self.old_keys)
            values, at = renewed.tree, renewed.now(at)
            texts = {renewed.now(place): text for place, text in texts.items()}
            self.said += renewed.said
        given = set(_places(values))
        lower = OmegaConf.to_container(self.node, resolve=False)
        self.leftovers = (self.leftovers - given) | set(_leftovers(lower, values))
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


def _line(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"{error}; allowed is UTF-8"
    return " ".join(str(error).split())


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
        return {**tree, **value} if isinstance(tree, dict) and isinstance(value, dict) else value
    step, rest = place[0], place[1:]
    if isinstance(step, str):
        inner = tree if isinstance(tree, dict) else {}
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
    plain = [OmegaConf.to_container(tree, resolve=False) for tree in (lower, higher)]
    return cast(DictConfig, OmegaConf.merge(OmegaConf.create(_without_other_kinds(*plain)), higher))


def _without_other_kinds(lower: Any, higher: Any) -> Any:
    """The lower tree without lists where the higher one has a section, and without sections where that has a list."""
    if not (isinstance(lower, dict) and isinstance(higher, dict)):
        return lower

    def clashes(key: Any) -> bool:
        kinds = {type(tree[key]) for tree in (lower, higher)}
        return key in higher and kinds == {dict, list}

    return {k: _without_other_kinds(v, higher.get(k)) for k, v in lower.items() if k not in higher or not clashes(k)}


def _leftovers(lower: Any, higher: Any, place: Place = ()) -> Iterator[Place]:
    """Fields that only the lower tree has, in sections where the higher one has another `kind`."""
    if not (isinstance(lower, dict) and isinstance(higher, dict)):
        return
    if higher.get("kind", lower.get("kind")) != lower.get("kind"):
        yield from ((*place, key) for key in lower if key not in higher)
    for key in lower.keys() & higher.keys():
        yield from _leftovers(lower[key], higher[key], (*place, key))


def _places(tree: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all sections and leaves."""
    yield place
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield from _places(value, (*place, key))


def _leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, (*place, key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _leaves(value, (*place, number))
    else:
        yield place, tree
