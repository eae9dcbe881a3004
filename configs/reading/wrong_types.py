"""Words for values of a wrong type: pydantic's errors as lines that name field, value and what is allowed."""

import json
import re
from typing import Any

from configs.reading.scalars import Texts, place_of
from configs.reading.tree import dotted

_SECTIONS_WANTED = ("dataclass_type", "dataclass_exact_type", "dict_type")
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "float_type": "a number",
}


def describe(error: Any, texts: Texts | None = None) -> str:
    """The line for one of pydantic's errors.

    Args:
        error: it, as a mapping.
        texts: how plain scalars were written.
    """
    place = place_of(error)
    where = dotted(place)
    value = error["input"]
    if isinstance(value, dict):
        shown = "a section"
    elif value is None or isinstance(value, bool):
        shown = json.dumps(value)  # as YAML writes it
    else:
        shown = repr(value)
    if error["type"] == "value_error":
        return f"{where}: {error['ctx']['error']}"
    if error["type"] == "missing":
        return f"{where}: missing; give it a value"
    if error["type"] == "unexpected_keyword_argument":
        return f"{where}: unknown key"
    if error["type"].startswith("union_tag") and isinstance(value, dict):
        if "kind" not in value:
            return f"{where}.kind: missing; name a kind"
        return f"{where}.kind: {value['kind']!r}; allowed is the name of a kind"
    if error["type"] in _SECTIONS_WANTED or error["type"].startswith("union_tag"):
        return f"{where}: {shown}; write a section with keys"
    if error["type"] == "string_pattern_mismatch":
        return f"{where}: {shown}; allowed is text that matches {error['ctx']['pattern']}"
    if error["type"] == "string_type" and isinstance(value, bool | int | float):
        return f"{where}: {shown}; allowed is text: put it in quotes, '{(texts or {}).get(place, shown)}'"
    message = _TYPES.get(error["type"]) or re.sub(r"^(Input should be|[A-Z]\w+ should have) ", "", error["msg"])
    return f"{where}: {shown}; allowed is {message}"
