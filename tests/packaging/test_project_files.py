"""Files about the project say what the project is."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


@pytest.mark.parametrize("name", ["Dockerfile", "apptainer.def"])
def test_images_are_installed_as_everything_is(name: str) -> None:
    text = (ROOT / "containers" / name).read_text()
    [python] = re.findall(r"python:(3\.\d+)-slim", text)
    assert PROJECT["requires-python"] == f">={python}"
    [install] = re.findall(r"make install [^&\n]*", text)
    assert "PYTHON=python3" in install.split()


def test_make_installs_what_developers_need_where_they_need_it() -> None:
    recipes = {
        target: subprocess.run(
            ["make", "-n", "-B", target, "PYTHON=python3"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for target in ("install", "demo", "check", "test", "test-slow", "docs", "reference")
    }
    assert all('--extras ""' in recipe for recipe in recipes.values())
    assert {target for target, recipe in recipes.items() if "-e '.[dev]'" in recipe} == {*recipes} - {"install", "demo"}


def test_hooks_run_what_is_there() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    known = {"ruff", "lint-imports", "python"}
    for hook in repository["hooks"]:
        program, *arguments = hook["entry"].split()
        assert Path(program).name in known
        assert all((ROOT / one).exists() for one in arguments if one.endswith(".py"))


def test_issue_forms_are_forms() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= form.keys()
