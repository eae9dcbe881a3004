"""The check of sizes finds what is one too many, and nothing that is just within the limits."""

import sys
from pathlib import Path

import pytest

from tests import house
from tests.conftest import Command


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.importlinter]\nroot_packages = ["package"]\n')
    for folder, number in (("package/room", 12), ("tests/room", 20)):
        (tmp_path / folder).mkdir(parents=True)
        for name in ["__init__", *(f"module_{n}" for n in range(number))]:
            (tmp_path / folder / f"{name}.py").touch()
    (tmp_path / "package/long.py").write_text("a = 1\n" * 350)
    body = "\n".join(["        a = 1"] * 59)
    (tmp_path / "package/functions.py").write_text(f"class C:\n    @property\n    def f(self):\n{body}\n")
    return tmp_path


def test_within_the_limits_nothing_is_said(root: Path) -> None:
    assert list(house.offences(root)) == []


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        ("package/long.py", "a = 1\n", "package/long.py: 351 lines; a file has at most 350"),
        ("package/functions.py", "        a = 1\n", "package/functions.py: f: 61 lines; a function has at most 60"),
        ("package/room/more.py", "", "package/room: 13 modules; a folder has at most 12, `__init__.py` apart"),
        ("tests/room/more.py", "", "tests/room: 21 modules; a folder has at most 20, `__init__.py` apart"),
    ],
)
def test_one_too_many_is_named(root: Path, path: str, more: str, said: str) -> None:
    with (root / path).open("a") as file:
        file.write(more)
    assert [": ".join(offence) for offence in house.offences(root)] == [said]
    done = Command([sys.executable, house.__file__, str(root)], cwd=root).finish()
    assert (done.code, done.out) == (1, f"{said}\n")
