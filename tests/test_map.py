"""The map of docs/architecture.md is that of today, nothing imports in a circle, and CI runs every folder of tests."""

import tomllib
from graphlib import TopologicalSorter

import grimp
import yaml

from tests import folders
from tests.conftest import REPO


def test_map_is_right() -> None:
    assert folders.page() == folders.PAGE.read_text(encoding="utf-8"), "make reference"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor by imports in functions, or for types alone."""
    settings = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    graph = grimp.build_graph(*settings["tool"]["importlinter"]["root_packages"], cache_dir=None)
    TopologicalSorter({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}).prepare()


def test_a_tool_can_be_deleted() -> None:
    """A folder of `zeromt` with an `options.py` is imported by nothing else but its own tests."""
    packages = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt", "benchmarks", "tests")
    graph = grimp.build_graph(*packages, cache_dir=None)
    tools = {f"zeromt.{path.parent.name}" for path in (REPO / "zeromt").glob("*/options.py")}
    assert len(tools) > 10
    for tool in tools:
        inside = {tool, *graph.find_descendants(tool)}
        users = {one for module in inside for one in graph.find_modules_that_directly_import(module)} - inside
        assert all(one.startswith(f"tests.{tool}.") for one in users), users


def test_the_workflow_leaves_no_folder_of_tests_out() -> None:
    workflow = yaml.safe_load((REPO / ".github/workflows/ci.yml").read_text())
    named = " ".join(workflow["jobs"]["test"]["strategy"]["matrix"]["folders"]).split()
    tests = [path.relative_to(REPO).parts[1] for path in (REPO / "tests").glob("*/**/test_*.py")]
    assert sorted(named) == sorted({"tests/test_*.py", *(f"tests/{folder}" for folder in tests)})
