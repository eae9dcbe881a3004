"""Tests are chosen by what changes, and the workflow of GitHub leaves none of their folders out."""

import pytest
import yaml

from tests.changed import touched
from tests.conftest import REPO


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["docs/data.md"], ["tests/docs"]),
        (["zeromt/averaging/average.py"], ["tests/zeromt/averaging"]),
        (["tests/faults/test_kills.py", "tests/faults/injected.py"], ["tests/faults"]),
        (["tests/faults/test_kills.py"], ["tests/faults/test_kills.py"]),
    ],
)
def test_the_innermost_folder_is_tested(files: list[str], found: list[str]) -> None:
    assert touched(files) == found


def test_so_is_what_imports_from_it() -> None:
    found = touched(["configs/process/signals.py"])
    assert {"tests/configs/process", "tests/launcher/agents", "tests/zeromt/cli"} <= {*found}


def test_what_belongs_to_no_folder_is_tested_by_what_stands_in_none() -> None:
    found = touched(["Makefile"])
    assert "tests/test_changed.py" in found
    assert "tests" not in found


def test_the_workflow_leaves_no_folder_out() -> None:
    workflow = yaml.safe_load((REPO / ".github/workflows/ci.yml").read_text())
    named = " ".join(workflow["jobs"]["test"]["strategy"]["matrix"]["folders"]).split()
    tests = [path.relative_to(REPO).parts[1] for path in (REPO / "tests").glob("*/**/test_*.py")]
    assert sorted(named) == sorted({"tests/test_*.py", *(f"tests/{folder}" for folder in tests)})
