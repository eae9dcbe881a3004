"""The tests of what a change touches: `make test-changed`, since the branch left main, or `SINCE=COMMIT`.

python -m tests.changed [COMMIT]    folders and files of tests, for pytest: those of each changed folder, of each folder
                                    that imports from it, and changed tests themselves
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def touched(files: Iterable[str]) -> list[str]:
    """Folders and files of tests, the innermost that there are, for these that have changed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*packages)
    paths = set()
    for file in map(Path, files):
        if file.parts[0] == "tests":
            paths |= {file} if file.name.startswith("test_") and (ROOT / file).exists() else {_nearest(file)}
            continue
        paths.add(_nearest("tests" / file))
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        if module in graph.modules:
            above = graph.find_modules_that_directly_import(module)
            paths |= {_nearest(Path("tests", *name.split("."))) for name in above}
    if Path("tests") in paths:  # the tests of no folder
        paths = paths - {Path("tests")} | {path.relative_to(ROOT) for path in (ROOT / "tests").glob("test_*.py")}
    return sorted(str(path) for path in paths if not any(parent in paths for parent in path.parents))


def _nearest(path: Path) -> Path:
    """The folder of tests of a path, or of what contains it; `tests` itself where none has."""
    return next(parent for parent in path.parents if (ROOT / parent).is_dir() and parent.parts[:1] == ("tests",))


if __name__ == "__main__":
    since = sys.argv[1] if len(sys.argv) > 1 else "main"
    commands = (["git", "diff", "--name-only", f"{since}..."], ["git", "diff", "--name-only", "HEAD"])
    changed = [subprocess.run(c, cwd=ROOT, check=True, capture_output=True, text=True).stdout for c in commands]
    print(*touched("".join(changed).split()))
