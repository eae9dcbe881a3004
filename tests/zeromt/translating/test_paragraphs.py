"""`--paragraphs`: a line's translation is that of its sentences, joined."""

from pathlib import Path

import pytest

from tests.zeromt.made import TAG, make_run, make_tokenizer
from zeromt.cli.main import main

LINES = [
    "the cat sat on a mat 3 times. dogs do not jump 4 times! quick brown foxes 5 times",
    "the cat sat on a mat 7 times",
    "",
    "  dogs do not jump 1 times?  the cat sat on a mat 2 times. ",
    f"{TAG} quick brown foxes 8 times. dogs do not jump 9 times",
]
SENTENCES = [
    ["the cat sat on a mat 3 times.", "dogs do not jump 4 times!", "quick brown foxes 5 times"],
    ["the cat sat on a mat 7 times"],
    [""],
    ["dogs do not jump 1 times?", "the cat sat on a mat 2 times."],
    [f"{TAG} quick brown foxes 8 times.", f"{TAG} dogs do not jump 9 times"],
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paragraphs") / "run"
    make_run(folder, make_tokenizer(joint=True), seed=3)
    return folder


def translated(run: Path, work: Path, lines: list[str], *options: str) -> list[str]:
    (work / "in").write_text("".join(f"{line}\n" for line in lines))
    assert main(["translate", str(run), "-i", str(work / "in"), "-o", str(work / "out"), *options]) == 0
    return (work / "out").read_text().splitlines()


def test_sentences_joined(run: Path, tmp_path: Path) -> None:
    by_sentence = iter(translated(run, tmp_path, [text for texts in SENTENCES for text in texts]))
    expected = [" ".join(next(by_sentence) for _ in texts) for texts in SENTENCES]
    assert translated(run, tmp_path, LINES) != expected  # one long text each
    assert translated(run, tmp_path, LINES, "--paragraphs") == expected
