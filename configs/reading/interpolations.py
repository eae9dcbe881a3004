"""What `${...}` may say in a configuration, and how secrets stay out of what is saved.

A person's own file and settings may write `${oc.env:NAME}`, `${oc.env:NAME,default}` and `${section.key}` (OmegaConf's
variable interpolation). A saved configuration, which may be a stranger's, is plain text: nothing in it is replaced.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from configs.errors import UserError
from configs.reading.passwords import lacks_password, without_passwords
from configs.reading.scalars import Place, value_at

_OPENING = re.compile(r"(\\*)\$\{")
"""`${`, with the backslashes before it, of which an odd number makes it plain text."""
_ALLOWED = re.compile(r"\s*(?:[\w.\[\]-]+|oc\.env\s*:[^{}$\\]*)\s*\}")
"""What may follow `${`: a key, or an environment variable with or without a default."""
_VARIABLE = re.compile(r"(\\*)\$\{\s*oc\.env\s*:")


class FromEnvironment(str):
    """Text with an environment variable's value or a password; `written` is what stands for it wherever it is kept."""

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


def literal(text: str, *, is_raw: bool) -> str:
    """Text that OmegaConf reads as `text`: with a backslash before each `${`.

    Args:
        is_raw: the text is from a saved file, in which an odd number of backslashes does so already.
    """

    def escaped(match: re.Match[str]) -> str:
        slashes = match[1]
        if is_raw:
            return match[0] if len(slashes) % 2 else f"{slashes}\\${{"
        return f"{slashes}{slashes}\\${{"

    return _OPENING.sub(escaped, text)


def as_plain_text(tree: Any, *, is_raw: bool) -> Any:
    """Values in which OmegaConf finds nothing to replace, except that variables stand as they were written.

    Args:
        tree: nested dictionaries, lists and values.
        is_raw: they were read from a saved file; otherwise they are to be written to one.
    """
    if isinstance(tree, dict):
        return {key: as_plain_text(value, is_raw=is_raw) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [as_plain_text(item, is_raw=is_raw) for item in tree]
    if isinstance(tree, FromEnvironment):
        return tree.written
    return literal(tree, is_raw=is_raw) if isinstance(tree, str) else tree


def check_interpolations(values: Any, *, what: str, at: Place = ()) -> None:
    """Check that interpolations are keys and environment variables: other resolvers do what they like.

    Args:
        values: nested dictionaries, lists and values as they were written.
        what: beginning of error messages.
        at: place of the values.

    Raises:
        UserError: one is something else.
    """
    for place, text in leaves(values, at):
        for match in _OPENING.finditer(text) if isinstance(text, str) else ():
            if len(match[1]) % 2 == 0 and not _ALLOWED.match(text, match.end()):
                raise UserError(
                    f"{what}: {'.'.join(map(str, place))}: {text!r}; allowed is ${{oc.env:NAME}}, "
                    "${oc.env:NAME,default} and ${section.key}; for plain text write \\${"
                )


def variables(node: Any) -> dict[Place, str]:
    """The values of a configuration that are not saved: their places, and what is saved for them.

    Those from environment variables are saved as they are written, those with a password in a URL with `***` for it.

    Args:
        node: OmegaConf's tree, in which all interpolations can be resolved.
    """
    raw = OmegaConf.to_container(node, resolve=False)
    if not any(isinstance(text, str) and ("://" in text or _VARIABLE.search(text)) for _, text in leaves(raw)):
        return {}
    plain = OmegaConf.to_container(node, resolve=True)
    written = OmegaConf.to_container(OmegaConf.create(_with_variables_as_text(raw)), resolve=True)
    saved = {}
    for place, text in leaves(written):
        if isinstance(text, str):
            is_variable = _VARIABLE.search(text) and text != value_at(plain, place)
            if (kept := without_passwords(text)) != text or is_variable:
                saved[place] = kept
    return saved


def _with_variables_as_text(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _with_variables_as_text(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_variables_as_text(item) for item in tree]
    if isinstance(tree, str):
        return _VARIABLE.sub(lambda match: literal(match[0], is_raw=True), tree)
    return tree


def with_variables(section: Any, saved: Mapping[Place, str], place: Place = ()) -> Any:
    """A section in which free text that is not saved knows what is saved for it.

    Text of which a configuration allows only some, as names of kinds and languages, is kept as it is: without it, a
    saved configuration could not be read.

    Args:
        section: a dataclass.
        saved: places of the values, and what is saved for them.
        place: of the section.
    """
    hints = get_type_hints(type(section), include_extras=True)
    changed = {}
    for field in dataclasses.fields(section):
        here = (*place, field.name)
        if any(one[: len(here)] == here for one in saved):
            changed[field.name] = _marked(getattr(section, field.name), hints[field.name], saved, here)
    return dataclasses.replace(section, **changed)


def _marked(value: Any, annotation: Any, saved: Mapping[Place, str], place: Place) -> Any:
    if dataclasses.is_dataclass(value):
        return with_variables(value, saved, place)
    if isinstance(value, list) and place in saved:  # text that its field has split into words
        words = TypeAdapter(annotation).validate_python(saved[place])
        written = [*words, *("" for _ in value)][: len(value)]
        return [FromEnvironment(item, one) for item, one in zip(value, written, strict=True)]
    if isinstance(value, list):
        return [_marked(item, _item_type(annotation), saved, (*place, n)) for n, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _marked(item, _item_type(annotation), saved, (*place, key)) for key, item in value.items()}
    if isinstance(value, str) and place in saved and _takes(annotation, saved[place]):
        return FromEnvironment(value, saved[place])
    return value


def _item_type(annotation: Any) -> Any:
    """The type of a list's items or of a mapping's values."""
    if get_origin(annotation) in (list, dict):
        return get_args(annotation)[-1]
    return next((_item_type(one) for one in get_args(annotation) if get_origin(one) in (list, dict)), Any)


def _takes(annotation: Any, text: str) -> bool:
    try:
        TypeAdapter(annotation).validate_python(text, strict=True)
    except ValidationError:
        return False
    return True


def as_saved(value: Any) -> Any:
    """A section, list or mapping as it is kept: without values of environment variables and passwords in URLs."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        kept = {name: as_saved(one) for name, one in given.items()}
        changed = {name: one for name, one in kept.items() if one is not given[name]}
        return dataclasses.replace(value, **changed) if changed else value
    if isinstance(value, list | tuple):
        items = [as_saved(item) for item in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        kept = {key: as_saved(item) for key, item in value.items()}
        return value if all(kept[key] is value[key] for key in value) else kept
    return value.written if isinstance(value, FromEnvironment) else value


def saved_fields(section: Any) -> dict[str, Any]:
    """A section's fields and those within, as they are kept."""
    return dataclasses.asdict(as_saved(section))


def refuse_unread(node: Any, *, what: str) -> None:
    """Check that a person who trains with a saved configuration has given each value that it does not keep.

    Raises:
        UserError: one is missing.
    """
    for place, text in leaves(OmegaConf.to_container(node, resolve=True)):
        if isinstance(text, str) and (_VARIABLE.search(text) or lacks_password(text)):
            key = ".".join(map(str, place))
            raise UserError(f"{what}: {key}: a saved configuration keeps no value of {text}; give it: {key}=VALUE")


def leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values that are neither dictionaries nor lists, with their places."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*place, key))
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from leaves(value, (*place, number))
    else:
        yield place, tree
