"""`evaluate --quantization`: an export has the scores that its translations have, as a run has."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.zeromt.made import ENGLISH, FRENCH, make_run, make_tokenizer
from zeromt.cli.main import main

SEARCH = ("--max-length-ratio", "1", "--max-length-extra", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and a set of twelve lines with a blank one."""
    root = tmp_path_factory.mktemp("engines")
    make_run(root / "run", make_tokenizer(), seed=5)
    english = [*ENGLISH[:5], "", *ENGLISH[6:12]]
    for name, lines in (("source", english), ("reference", FRENCH[:12])):
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root


def report(folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    files = ("--source", str(folder / "source"), "--reference", str(folder / "reference"))
    assert main(["evaluate", str(folder / "run"), *files, "-o", str(folder / "out"), *SEARCH, *options]) == 0
    figures: dict[str, Any] = json.loads(capfd.readouterr().out)
    return figures


def test_an_export_has_the_scores_of_its_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2")
    of_run = report(folder, capfd)
    translations = (folder / "out").read_text()
    assert of_run["sentences_per_second"] > 0
    of_export = report(folder, capfd, "--quantization", "float32")
    assert (folder / "out").read_text() == translations
    scores = ("bleu", "bleu_signature", "chrf", "chrf_signature", "pairs", "truncated", "repeated")
    assert {key: of_export[key] for key in scores} == {key: of_run[key] for key in scores}
    assert report(folder, capfd, "--quantization", "int8", "--metrics", "bleu")["precision"] == "int8"
    in_parts = ["translate", str(folder / "run"), "-i", str(folder / "source"), "-o", str(folder / "parts"), *SEARCH]
    for share in (("--part", "1/1"), ("--merge",)):
        assert main([*in_parts, "--quantization", "float32", *share]) == 0
    assert (folder / "parts" / "translations.txt").read_text() == translations
