"""The map of docs/architecture.md is that of today, and every page that is linked is there."""

import re
import tomllib
from graphlib import TopologicalSorter

import grimp
import pytest

from configs.components.registry import FAMILIES
from tests import folders
from tests.conftest import REPO


def test_map_is_right() -> None:
    assert folders.page() == folders.PAGE.read_text(encoding="utf-8"), "make reference"


def test_the_pages_are_there() -> None:
    for page in ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (REPO / "docs").glob("*.md"))):
        text = (REPO / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert ((REPO / page).parent / target).exists(), f"{page}: {target}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor by imports in functions, or for types alone."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    graph = grimp.build_graph(*settings["tool"]["importlinter"]["root_packages"], cache_dir=None)
    TopologicalSorter({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}).prepare()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/components.md"])
def test_every_family_of_components_has_a_row(page: str) -> None:
    rows = set(re.findall(r"^\| ([\w-]+) \|", (REPO / page).read_text(encoding="utf-8"), re.M))
    assert sorted(FAMILIES.keys() - rows) == []
    for package in FAMILIES.values():
        assert f"{package.replace('.', '/')}/" in (REPO / page).read_text(encoding="utf-8")
