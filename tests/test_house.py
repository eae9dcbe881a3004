"""The check of sizes finds what is one too many, and nothing that is just within the limits."""

import sys
from pathlib import Path

import pytest

from tests import house
from tests.conftest import Command


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.importlinter]\nroot_packages = ["package"]\n')
    (tmp_path / "package").mkdir()
    (tmp_path / "package/long.py").write_text("a = 1\n" * 500)
    body = "\n".join(["        a = 1"] * 79)
    (tmp_path / "package/functions.py").write_text(f"class C:\n    @property\n    def f(self):\n{body}\n")
    return tmp_path


def test_within_the_limits_nothing_is_said(root: Path) -> None:
    assert list(house.offences(root)) == []


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        ("package/long.py", "a = 1\n", "package/long.py: 501 lines; a file has at most 500"),
        ("package/functions.py", "        a = 1\n", "package/functions.py: f: 81 lines; a function has at most 80"),
    ],
)
def test_one_too_many_is_named(root: Path, path: str, more: str, said: str) -> None:
    with (root / path).open("a") as file:
        file.write(more)
    assert [": ".join(offence) for offence in house.offences(root)] == [said]
    done = Command([sys.executable, house.__file__, str(root)], cwd=root).finish()
    assert (done.code, done.out) == (1, f"{said}\n")
