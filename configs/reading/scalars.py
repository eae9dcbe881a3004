"""Restores plain YAML scalars that YAML 1.1 interprets in an unexpected way.

PyYAML and OmegaConf read YAML 1.1, in which `no` is false (but also the code of Norwegian), 8:30 is 510 (base 60), and
017 is 15 (base 8). If the field accepts the interpreted value, it is kept: `tensorboard: no` is false. If the field is
text, a scalar that is text in YAML 1.2 becomes the text as it was written. If the field is a number, a scalar in base
60 or 8 is refused.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader that OmegaConf uses; the other one refuses a tab after a colon."""
_TEXT_IS_WANTED = ("string_type", "literal_error")
"""Types of pydantic's errors for a value that should be text."""
Place = tuple[str | int, ...]
"""A path in a tree: names of sections and fields, and indices of list items."""
Texts = dict[Place, str]
"""How plain scalars (without quotes) were written, by their places."""

_NUMBER_OR_WORD_1_2 = re.compile(
    r"""~|null|Null|NULL|true|True|TRUE|false|False|FALSE|
    [-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|
    [-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|
    [-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|""",
    re.VERBOSE,
)
"""Plain scalars that are not text in the core schema of YAML 1.2 (specification, section 10.3.2)."""
_OTHER_BASE = re.compile(r"[-+]?(?:0[0-9_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)")
"""Numbers that YAML 1.1 reads in base 8 or 60. Those such as 0x10 and 0b11 are not included: they show their base."""


def texts_of(text: str) -> Texts:
    """How the plain scalars of a document were written, by their places.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    texts: Texts = {}
    waiting: list[tuple[Place, yaml.Node | None]] = [((), yaml.compose(text, Loader=_LOADER))]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            waiting += [((*place, key), value) for key, value in _entries(node).items()]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [((*place, number), item) for number, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and not node.style:
            texts[place] = node.value
    return texts


def _entries(node: yaml.MappingNode) -> dict[str, yaml.Node]:
    """A mapping's values by key, including those of merged mappings (`<<`), which its own replace."""
    own = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
    merged = own.pop("<<", None)
    for other in merged.value if isinstance(merged, yaml.SequenceNode) else [merged]:
        if isinstance(other, yaml.MappingNode):
            own = _entries(other) | own
    return own


def is_text(written: str) -> bool:
    """Whether YAML 1.2 reads a plain scalar as text."""
    return _NUMBER_OR_WORD_1_2.fullmatch(written) is None


def is_in_other_base(written: str) -> bool:
    """Whether YAML 1.1 reads a plain scalar as a number in base 8 or 60."""
    return _OTHER_BASE.fullmatch(written) is not None


def place_of(error: Any) -> Place:
    """The place in the tree of one of pydantic's errors."""
    return tuple(part for part in error["loc"] if not str(part).startswith(("constrained-", "function-")))


def as_written(tree: Any, texts: Texts, errors: Callable[[Any], Sequence[Any]]) -> Any:
    """The tree with the original text of every scalar that is text in YAML 1.2 and for which the field wants text.

    Args:
        tree: plain dictionaries, lists and values.
        texts: how plain scalars were written.
        errors: returns pydantic's errors for a tree.
    """
    if not any(is_text(written) for written in texts.values()):
        return tree
    for error in errors(tree):
        place = place_of(error)
        if error["type"] in _TEXT_IS_WANTED and is_text(texts.get(place, "0")):
            tree = _with_text(tree, place, texts[place])
    return tree


def number_problems(tree: Any, texts: Texts) -> Iterator[tuple[Place, str]]:
    """Numbers that were read in base 8 or 60: the place of each, and an error message."""
    for place, written in texts.items():
        value = value_at(tree, place) if is_in_other_base(written) else None
        if isinstance(value, int | float) and not _is_the_same_in_base_10(written, value):
            base = 60 if ":" in written else 8
            yield (
                place,
                f"{'.'.join(map(str, place))}: YAML reads {written} as {value}, in base {base}; "
                f"write a number in base 10, such as {value}, or text in quotes",
            )


def _is_the_same_in_base_10(written: str, value: float) -> bool:
    return ":" not in written and int(written.replace("_", "")) == value


def value_at(tree: Any, place: Place) -> Any:
    """What is at a place in a tree; None if it is not there, such as an unknown key that was removed."""
    try:
        for step in place:
            tree = tree[step]
    except (KeyError, IndexError, TypeError):
        return None
    return tree


def _with_text(tree: Any, place: Place, text: str) -> Any:
    if not place:
        return text
    step, rest = place[0], place[1:]
    if isinstance(tree, list):
        return [_with_text(item, rest, text) if number == step else item for number, item in enumerate(tree)]
    return {key: _with_text(item, rest, text) if key == step else item for key, item in tree.items()}
