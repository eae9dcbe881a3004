"""Reads YAML 1.2 (its core schema) with PyYAML, which knows YAML 1.1 only.

In 1.1 `no` is false (but also the code of Norwegian), 8:30 is 510, and 1e-3 is text. In 1.2 they are text, text and a
number. All keys are text.
"""

import codecs
import re
from typing import Any, ClassVar

import yaml
from yaml.error import MarkedYAMLError
from yaml.scanner import ScannerError

from configs.errors import UserError
from configs.process.text import shortened

MOST_VALUES = 100_000
"""Values of a file with all its aliases written out: a few lines of aliases of aliases could be billions."""
_PLAIN: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_PLAIN):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: made
        for tag, made in _PLAIN.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("map", "seq", "str")
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        keys: list[str] = []
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise MarkedYAMLError(problem="found a key that is not text", problem_mark=key.start_mark)
            if key.value in keys:
                raise MarkedYAMLError(problem=f"found duplicate key {key.value}", problem_mark=key.start_mark)
            keys.append(key.value)
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


def _number(text: str) -> int | float:
    text = text.lower().replace("_", "")
    if re.match(r"0[xo]", text):
        return int(text, 0)
    is_whole = re.fullmatch(r"[-+]?[0-9]+", text)
    return int(text) if is_whole else float(re.sub(r"\.(?=inf|nan)", "", text))


for _tag, _pattern, _made in (
    ("null", r"~|null|Null|NULL|", lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+", _number),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        _number,
    ),
    ("merge", "<<", None),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), None)
    if _made is not None:
        _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", lambda _, node, made=_made: made(node.value))


def read_yaml(content: str | bytes, what: str) -> Any:
    """The dictionaries, lists, text, numbers, booleans and None of a document.

    Args:
        content: bytes are UTF-8, or UTF-16 with a byte order mark.
        what: the beginning of error messages.

    Raises:
        UserError: it is not YAML, has a key twice, or has more than `MOST_VALUES` values.
    """
    text = ""
    try:
        text = content if isinstance(content, str) else _decoded(content)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > MOST_VALUES:
                raise ValueError(f"it has more than {MOST_VALUES} values; use fewer aliases")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{what}: cannot be read: {_line(error, text)}") from error


def _decoded(content: bytes) -> str:
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def _size(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """The number of values below a node, each alias counted in full; infinite if a node contains itself."""
    if node not in known:
        known[node] = float("inf")
        inner = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[node] = 1 + (0 if isinstance(node, yaml.ScalarNode) else sum(_size(one, known) for one in inner))
    return known[node]


def _line(error: BaseException, text: str) -> str:
    """An error as one line, with advice for the slips that people make.

    Args:
        error: of reading.
        text: what was read.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"{error}; allowed is UTF-8"
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    problem, number, lines = error.problem or "", error.problem_mark.line, [*text.splitlines(), ""]
    line = lines[min(number, len(lines) - 1)]
    if isinstance(error, ScannerError) and "\t" in line[: len(line) - len(line.lstrip())]:
        return f"a tab in line {number + 1}: use spaces"
    if problem.startswith("found duplicate key"):
        return f"{problem.removeprefix('found ')} in line {number + 1}: keep one of the two"
    advice = ""
    if (error.context or "").startswith("while parsing a flow") and error.context_mark is not None:
        begin = error.context_mark.line
        advice = f", for the bracket that opens in line {begin + 1}"
        advice += "; a # in brackets ends the line" if "#" in lines[min(begin, len(lines) - 1)] else ""
    if problem == "mapping values are not allowed in this context":
        advice = "; indent it as the line before, and write one key a line, or {a: 1, b: 2}"
    shown = f": {shortened(line.strip())!r}" if line.strip() else ""
    return f"line {number + 1}, column {error.problem_mark.column + 1}{shown}: {problem}{advice}"
