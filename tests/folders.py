"""The map of folders in docs/architecture.md, made from their docstrings: `make reference`."""

import ast
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
_BEGIN, _END = "```text\n", "```\n"
_WIDTH = 24
_HEADING = "## Folders\n"


def page() -> str:
    """The page with the map of today in place of its own."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.partition(_HEADING)
    head, _, rest = after.partition(_BEGIN)
    tree = "\n".join(_lines())
    return f"{before}{_HEADING}{head}{_BEGIN}{tree}\n{_END}{rest.partition(_END)[2]}"


def _lines() -> Iterator[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    roots = settings["tool"]["importlinter"]["root_packages"]
    for name in [*reversed(roots[:-1]), roots[-1], "benchmarks"]:
        yield from _below(ROOT / name, 0)
    yield from _below(ROOT / "tests", 0, but={*roots, "benchmarks"})


def _below(folder: Path, depth: int, but: frozenset[str] | set[str] = frozenset()) -> Iterator[str]:
    """A line for a package and each below it; of the tests those alone that test no folder of the same name."""
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    what = " ".join(doc.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
    assert what, f"{folder.relative_to(ROOT)}/__init__.py: say in a docstring what is in the folder"
    name = f"{'  ' * depth}{folder.name}/".ljust(_WIDTH)
    yield from textwrap.wrap(what, 120, initial_indent=name, subsequent_indent=" " * _WIDTH, break_on_hyphens=False)
    for path in sorted(folder.iterdir()):
        if (path / "__init__.py").exists() and path.name not in but and not (but and depth):
            yield from _below(path, depth + 1, but)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
