"""The map of docs/architecture.md is right: every folder of code stands in it once, and what stands in it is there."""

import re
import tomllib
from collections import Counter

import pytest

from configs.components.registry import FAMILIES
from tests.conftest import REPO

_LINE = re.compile(r"^((?:  )*)([\w/-]+)/ +(\S.*)$")


def mapped() -> list[str]:
    """The folders of the tree, in its order."""
    text = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8").partition("\n## Folders\n")[2]
    found: list[str] = []
    above: list[str] = []
    for match in filter(None, map(_LINE.match, text.splitlines())):
        depth = len(match[1]) // 2
        assert depth <= len(above), match[0]
        above = [*above[:depth], match[2]]
        found.append("/".join(above))
    return found


def test_map_is_right() -> None:
    found = mapped()
    assert [name for name, number in Counter(found).items() if number > 1] == []
    assert [name for name in found if not (REPO / name).is_dir()] == []
    settings = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    roots = [*settings["tool"]["importlinter"]["root_packages"], "benchmarks"]
    packages = {
        file.parent.relative_to(REPO).as_posix() for root in roots for file in (REPO / root).rglob("__init__.py")
    }
    mirrored = {f"tests/{root}" for root in roots}
    tests = {file.parent.relative_to(REPO).as_posix() for file in (REPO / "tests").glob("*/__init__.py")} - mirrored
    assert sorted((packages | tests) - set(found)) == []


def test_the_pages_are_there() -> None:
    for page in ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (REPO / "docs").glob("*.md"))):
        text = (REPO / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert ((REPO / page).parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/components.md"])
def test_every_family_of_components_has_a_row(page: str) -> None:
    rows = set(re.findall(r"^\| ([\w-]+) \|", (REPO / page).read_text(encoding="utf-8"), re.M))
    assert sorted(FAMILIES.keys() - rows) == []
    for package in FAMILIES.values():
        assert f"{package.replace('.', '/')}/" in (REPO / page).read_text(encoding="utf-8")
