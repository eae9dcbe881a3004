"""Other packages still have the private names that zeromt uses, and zeromt uses no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.private_names import ROWS, Row
from trainer.engines.deepspeed.patches import PATCHES

REPO = Path(__file__).parents[1]
PACKAGES = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
STANDARD_LIBRARY = ("os", "argparse", "parser")
"""Names of its modules and objects in the code, whose private names are no other package's."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.package}: {row.probe.__name__}, {', '.join(row.names)}")
def test_is_there_and_as_it_was(row: Row) -> None:
    """Those that are reached at the first NaN alone, too."""
    row.probe()


def test_every_patch_has_a_probe() -> None:
    assert {patch.target for patch in PATCHES} == {row.patch.target for row in ROWS if row.patch is not None}


def private_names(path: Path) -> Iterator[str]:
    """The private names in a module that neither it nor its classes define."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
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
    listed = {name for row in ROWS for name in row.names}
    used = {
        name: str(path.relative_to(REPO))
        for package in PACKAGES
        for path in sorted((REPO / package).rglob("*.py"))
        for name in private_names(path)
    }
    missing = {name: path for name, path in used.items() if name not in listed}
    assert not missing, "list them in tests/private_names.py, with a probe"
