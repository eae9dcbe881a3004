"""`${oc.env:NAME}`, `${oc.env:NAME,default}` and `${section.key}` in a configuration; `\\${` is plain text.

A variable's value is used but never saved: what is saved is the text as it was written. In a saved configuration, which
may be a stranger's, nothing is replaced.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from configs.errors import UserError
from configs.process.streams import URLS_AS_WRITTEN

Place = tuple[str, ...]
"""A path in a tree: names of sections and fields, and indices of list items."""
_FORM = re.compile(
    r"\\\$\{|\$\{\s*(?:oc\.env\s*:\s*(?P<name>[^\s,{}$]+)\s*(?:,(?P<default>[^{}$]*))?|(?P<key>[\w.\[\]-]+))\s*\}"
    r"|(?P<other>\$\{)"
)
_PASSWORD = re.compile(r"://[^/?#\s:@]*:[^/?#\s]+@")
_DEEPEST = 20


class FromEnvironment(str):
    """Text with the value of an environment variable; `written` is what is saved."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str) -> "FromEnvironment":
        """Text, and how it was written."""
        made = super().__new__(cls, value)
        made.written = written
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """For copies, which `dataclasses.asdict` makes."""
        return str(self), self.written


def dotted(place: Place) -> str:
    """`section.list.0`."""
    return ".".join(place)


def leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values that are neither dictionaries nor lists, with their places."""
    if isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*place, str(step)))
    else:
        yield place, tree


def check_forms(tree: Any, what: str, place: Place = ()) -> None:
    """Check that each `${` in a layer is of an allowed form.

    Raises:
        UserError: one is not.
    """
    for where, text in leaves(tree, place):
        if isinstance(text, str) and any(match["other"] for match in _FORM.finditer(text)):
            raise UserError(
                f"{what}: {dotted(where)}: {text!r}; allowed is ${{oc.env:NAME}}, ${{oc.env:NAME,default}} and "
                "${section.key}; for plain text write \\${"
            )


def of_saved(tree: Any) -> Any:
    """The values of a saved configuration, so that `resolved` replaces nothing in them."""

    def text(written: str) -> str:
        if any(match["name"] for match in _FORM.finditer(written)):
            return FromEnvironment(written, written)
        return re.sub(r"(?<!\\)\$\{", r"\\${", written)

    return _with_texts(tree, text)


def resolved(node: Any, tree: Any, what: str, place: Place = (), depth: int = 0) -> Any:
    """A layer with all `${...}` replaced.

    Args:
        node: the layer, or a value in it.
        tree: the whole layer, which keys refer to.
        what: the beginning of error messages.
        place: of `node`.
        depth: how many references led here.

    Raises:
        UserError: a variable is not set, a key does not exist or refers to itself, or a URL has a password.
    """
    if isinstance(node, dict):
        return {key: resolved(value, tree, what, (*place, key), depth) for key, value in node.items()}
    if isinstance(node, list):
        return [resolved(value, tree, what, (*place, str(n)), depth) for n, value in enumerate(node)]
    if not isinstance(node, str):
        return node

    def one(match: re.Match[str]) -> Any:
        if match["name"]:
            value = os.environ.get(match["name"], match["default"])
            if value is None:
                raise UserError(f"{what}: {dotted(place)}: {match[0]}: this environment variable is not set")
            return FromEnvironment(value, match[0])
        if not match["key"]:
            return "${"
        try:
            value = _at(tree, re.findall(r"[^.\[\]]+", match["key"]))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UserError(f"{what}: {dotted(place)}: {match[0]}: there is no such key; give another") from error
        if depth > _DEEPEST:
            raise UserError(f"{what}: {dotted(place)}: {match[0]}: it refers to itself; give another key")
        return resolved(value, tree, what, place, depth + 1)

    whole = _FORM.fullmatch(node)
    if isinstance(node, FromEnvironment):
        made: Any = node
    elif whole:
        made = one(whole)
    else:
        text = _FORM.sub(lambda match: str(one(match)), node)
        written = _FORM.sub(lambda match: _written(one(match)), node)
        made = FromEnvironment(text, written) if text != written else text
    if isinstance(made, FromEnvironment) and "://" in made:
        URLS_AS_WRITTEN[made] = made.written
    if isinstance(made, str) and _PASSWORD.search(made):
        raise UserError(
            f"{what}: {dotted(place)}: the URL contains a password; remove `user:password@` and let the service's own "
            "environment variables or files supply it"
        )
    return made


def _at(tree: Any, place: list[str]) -> Any:
    for step in place:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree


def _written(value: Any) -> str:
    return value.written if isinstance(value, FromEnvironment) else str(value)


def as_saved(value: Any) -> Any:
    """A section, list, mapping or text as it is saved: each variable as it was written."""
    return _with_texts(value, lambda text: getattr(text, "written", text))


def saved_fields(section: Any) -> dict[str, Any]:
    """A section's fields and those within, as they are saved."""
    return dataclasses.asdict(as_saved(section))


def remembering(value: Any, written: Any) -> Any:
    """A section whose texts know how they were written.

    Args:
        value: the section with the values of variables.
        written: the same section, read from the text with the variables' names.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = {name: remembering(one, getattr(written, name)) for name, one in _fields(value).items()}
        return dataclasses.replace(value, **made)
    if isinstance(value, list):  # a command of several words may have been written as one
        return [remembering(one, other) for one, other in zip(value, [*written, *[""] * len(value)], strict=False)]
    if isinstance(value, dict):
        return {key: remembering(one, written[key]) for key, one in value.items()}
    return FromEnvironment(value, written) if isinstance(value, str) and value != written else value


def escaped(tree: Any) -> Any:
    """Plain dictionaries, lists and values as they are written to a saved configuration."""
    return _with_texts(tree, lambda text: getattr(text, "written", text.replace("${", "\\${")))


def _with_texts(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree of sections, dictionaries and lists with its texts changed."""
    if isinstance(tree, dict):
        return {key: _with_texts(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_with_texts(value, change) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(tree, **{name: _with_texts(one, change) for name, one in _fields(tree).items()})
    return change(tree) if isinstance(tree, str) else tree


def _fields(section: Any) -> dict[str, Any]:
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section) if field.init}
