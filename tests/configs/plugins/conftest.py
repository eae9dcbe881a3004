"""A user's folder with a configuration and a plugin, in a process that has loaded none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from configs import plugins
from configs.components import kinds
from configs.components.registry import FAMILIES, registered, restore
from tests.configs.plugins.halves import HALVES, USED


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads is gone after it."""
    for family in FAMILIES:
        kinds(family)
    before = registered()
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    restore(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and its plugin; the current one is another."""
    home = tmp_path / "user"
    (home / "elsewhere").mkdir(parents=True)
    (home / "halves.py").write_text(HALVES)
    (home / "my.yaml").write_text(f"{USED}plugins: [halves.py]\n")
    monkeypatch.chdir(home / "elsewhere")
    return home
