"""`evaluate --documents`: scores of whole documents beside those of lines."""

import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.zeromt.exporting.made import ENGLISH, FRENCH, make_run, make_tokenizer
from zeromt.cli.main import main

IDS = ["a"] * 3 + ["b"] + ["c"] * 5 + ["a"] * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and a set of twelve lines in four documents."""
    root = tmp_path_factory.mktemp("documents")
    make_run(root / "run", make_tokenizer(joint=True), seed=5)
    for name, lines in (("source", ENGLISH), ("reference", FRENCH), ("ids", IDS)):
        (root / name).write_text("".join(f"{line}\n" for line in lines[: len(IDS)]))
    return root


def evaluate(folder: Path, *options: str) -> int:
    files = ["--source", str(folder / "source"), "--reference", str(folder / "reference")]
    return main(["evaluate", str(folder / "run"), *files, *options])


def test_lines_of_a_document_are_joined(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    assert evaluate(folder, "--documents", str(folder / "ids"), "-o", str(out)) == 0
    report = json.loads(capsys.readouterr().out)
    cuts = [(0, 3), (3, 4), (4, 9), (9, 12)]
    hypotheses, references = (
        [" ".join(lines[a:b]) for a, b in cuts] for lines in (out.read_text().splitlines(), FRENCH)
    )
    assert report["documents"] == 4
    assert report["document_bleu"] == pytest.approx(BLEU().corpus_score(hypotheses, [references]).score, abs=0.005)
    assert evaluate(folder) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["bleu"] == report["bleu"]
    assert not [key for key in plain if key.startswith("document")]


@pytest.mark.parametrize(
    ("content", "message"),
    [("a\n" * 11, "11 lines beside 12 of --source"), ("a\n" * 5 + "\n" + "b\n" * 6, "line 6 is empty")],
)
def test_an_id_for_each_line(folder: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad").write_text(content)
    assert evaluate(folder, "--documents", str(folder / "bad")) == 2
    assert message in capsys.readouterr().err
