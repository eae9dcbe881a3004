"""Other packages still have the private names that zeromt uses, and zeromt uses no other."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.private_names import ROWS
from trainer.engines.deepspeed.patches import Row, missing

PACKAGES = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
STANDARD_LIBRARY = ("os", "argparse", "parser")
"""Names of its modules and objects in the code, whose private names are no other package's."""


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_is_there(row: Row) -> None:
    """What is reached at the first NaN alone, too."""
    place, *names = row
    resolved = pkgutil.resolve_name(place)
    if hasattr(resolved, "default"):  # an operator
        there = {argument.name for argument in resolved.default._schema.arguments}
        assert set(" ".join(names).split()) <= there
    else:
        assert missing(row) == []


def private_names(path: Path) -> Iterator[str]:
    """The private names in a module that neither it nor its classes define."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            names = [] if ast.unparse(node.value) in ("self", "cls", *STANDARD_LIBRARY) else [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in PACKAGES:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            names = [str(ast.literal_eval(node.args[1]))] if isinstance(node.args[1], ast.Constant) else []
        else:
            continue
        yield from (name for name in names if name.startswith("_") and not name.startswith("__") and name not in own)


def test_what_is_used_is_listed() -> None:
    listed = set(re.findall(r"\w+", " ".join(chain.from_iterable(ROWS))))
    for package in PACKAGES:
        for path in (REPO / package).rglob("*.py"):
            assert set(private_names(path)) <= listed, f"{path}: list it in tests/private_names.py"
