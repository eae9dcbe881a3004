"""A corpus of a thousand lines, and commands on it in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.small import FILES, small_runs
from zeromt.cli.main import main

Translate = Callable[..., int]


@pytest.fixture(scope="session")
def run() -> str:
    """A run that has hardly learnt anything."""
    return str(small_runs() / "runs" / "small")


@pytest.fixture
def translate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Translate:
    """Runs `zeromt translate` in the test's folder; its exit code."""
    return translating(monkeypatch, tmp_path)


def translating(patch: pytest.MonkeyPatch, folder: Path) -> Translate:
    """Runs `zeromt translate` in a folder, until the patch is taken back."""
    patch.setattr("zeromt.translator.engine.tune_process", lambda: None)  # not for the process of the tests
    patch.chdir(folder)
    return lambda *words: main(["translate", *words])


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """What stands in `in.en`."""
    return write_lines(tmp_path)


def write_lines(folder: Path) -> list[str]:
    """`in.en`: some of it twice, some blank, some strange, and some longer than the model holds."""
    sentences = (FILES / "corpus" / "a.en").read_text().splitlines()[:24]
    sentences[3], sentences[9], sentences[17] = "", " \t", "\x01control\x7f\x1b[0m \u2028 \x85 end"
    sentences[5] = " ".join(f"This is sentence number {number}." for number in range(60))
    sentences[6] = "word " * 3000
    (folder / "in.en").write_text("".join(f"{line}\n" for line in sentences))
    return sentences
