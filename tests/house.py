"""How large functions and files may be. `make check` runs it, with the standard library alone.

python tests/house.py    one line for each offender, then exit code 1
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES = 80
FILE_LINES = 500


def sources(root: Path) -> list[Path]:
    """Every module below the packages that pyproject.toml names, the benchmarks and the tests, relative to `root`."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders = [*settings["tool"]["importlinter"]["root_packages"], "benchmarks", "tests"]
    return [path.relative_to(root) for folder in folders for path in sorted((root / folder).rglob("*.py"))]


def offences(root: Path) -> Iterator[tuple[str, str]]:
    """What is too large: its name, and how large it is."""
    for path in sources(root):
        text = (root / path).read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > FILE_LINES:
            yield path.as_posix(), f"{lines} lines; a file has at most {FILE_LINES}"
        for node in ast.walk(ast.parse(text, str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    yield f"{path.as_posix()}: {node.name}", f"{lines} lines; a function has at most {FUNCTION_LINES}"


def main() -> int:
    """Print the problems.

    Returns:
        1 where there are any.
    """
    lines = [f"{name}: {size}" for name, size in offences(Path(__file__).parents[1])]
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
