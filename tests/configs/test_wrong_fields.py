"""Each field of the files that people write refuses what it cannot be, in a line that begins with its path."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.reading.meanings import FieldHelp, fields
from configs.schema import RunConfig
from launcher.slurm.profile import Profile
from zeromt.cli.main import main

FILES: dict[str, tuple[type[Any], str]] = {
    "run": (RunConfig, "train"),
    "profile of a cluster": (Profile, "launch slurm debug --site"),
}
"""What is in a file, and a command that reads it."""
OTHER_TYPES: dict[str, list[Any]] = {
    "whole number": ["512", 512.5, True],
    "number": ["0.5", True, math.nan, math.inf],
    "text": [3, 1.5, True],
    "true or false": [1, "true", 0.5],
    "list of: ": [{"odd": 1}, 3],
    "mapping": [3, "x", [1]],
    "section": [3, "x", [1]],
    "kind: ": [3, [1], "x"],
    "": [{"odd": 1}, [1], "nonsense"],
}
"""Values that are not of the type with which a field's help begins."""
KINDS = 12
"""No family of components has more; each of so many files takes one of each."""
DEPTH = 4
"""How deep sections lie."""


def wrong_values(field: FieldHelp) -> list[Any]:
    """Values of no type of the field's, and those just beyond its bounds."""
    begin = next(one for one in OTHER_TYPES if field.type.startswith(one))
    has_several_types = " or " in field.type.replace(" or null", "").replace("true or false", "")
    values: list[Any] = [2**63] if begin == "whole number" else []
    for word, text, is_length in re.findall(r"(above|at least|at most|below) ([-\d.]+)( long)?", field.type):
        step = 1 if is_length or begin == "whole number" else 0.001
        beyond = float(text) + {"at least": -step, "at most": step}.get(word, 0)
        values.append("x" * int(beyond) if is_length else int(beyond) if step == 1 else beyond)
    values += ["\n"] if "on one line" in field.type else []
    if begin == "list of: ":  # whose bounds are those of its items, or of itself
        values = [["\n"]] if "on one line" in field.type else []
    return values + ([{"odd": 1}] if has_several_types else OTHER_TYPES[begin])


def wrong_file(root: type[Any], number: int, *, misspelt: bool) -> tuple[dict[str, Any], list[str]]:
    """The nth file, in which all fields are wrong that can be at once, and their paths."""
    tree: dict[str, Any] = {}
    wrong: list[str] = []
    sections: dict[str, tuple[dict[str, Any], str, str | None]] = {"": (tree, "", None)}
    for field in fields(root):
        path = re.sub(r"\[N\]|\.NAME", "", field.path)
        above, _, name = path.rpartition(".")
        section, prefix, kind = sections.get(above, ({}, "", ""))
        if field.kind != kind or path == "plugins":  # as a run keeps them; people write names of files
            continue
        if misspelt and (kind or number == 0):
            section[f"{name}q"] = 1
            wrong.append(f"{prefix}{name}q")
        elif not misspelt and (not field.is_section or path.count(".") == number - KINDS):
            values = wrong_values(field)
            section[name] = values[number % len(values)]
            wrong.append(f"{prefix}{name}")
        if field.is_section and name not in section:
            kinds = re.findall(r"\w+", field.type.partition("kind: ")[2].removesuffix(" or null")) or [None]
            kind = kinds[number % len(kinds)]
            inner = {} if kind is None else {"kind": kind}
            step, section[name] = {"l": (".0", [inner]), "m": (".x", {"x": inner})}.get(field.type[0], ("", inner))
            sections[path] = (inner, f"{prefix}{name}{step}.", kind)
    return tree, wrong


@pytest.mark.parametrize("misspelt", [False, True], ids=["values", "keys"])
@pytest.mark.parametrize("what", FILES)
def test_wrong_fields_are_named(what: str, misspelt: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, command = FILES[what]
    for number in range(KINDS if misspelt else KINDS + DEPTH):
        tree, wrong = wrong_file(root, number, misspelt=misspelt)
        if not wrong:
            break
        (tmp_path / "file.yaml").write_text(yaml.safe_dump(tree))
        assert main([*command.split(), str(tmp_path / "file.yaml")]) == 2
        said = [line.removeprefix("zeromt: error: ") for line in capsys.readouterr().err.splitlines()]
        named = {path: [line for line in said if re.match(rf"{re.escape(path)}[.:]", line)] for path in wrong}
        assert [path for path, lines in named.items() if not lines] == []
        of_none = set(said).difference(*named.values())
        assert [line for line in of_none if ": missing; " not in line] == []
