"""`evaluate --engine`: an export has the scores that its translations have, as a run has."""

import json
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.zeromt.exporting.made import ENGLISH, FRENCH, make_run, make_tokenizer
from zeromt.cli.main import main
from zeromt.evaluating.scoring import speed

SEARCH = {"max_length_ratio": 1.0, "max_length_extra": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a set of twelve lines with a blank one, and engines: its exports, and itself."""
    root = tmp_path_factory.mktemp("engines")
    make_run(root / "run", make_tokenizer(), seed=5)
    english = [*ENGLISH[:5], "", *ENGLISH[6:12]]
    for name, lines in (("source", english), ("reference", FRENCH[:12])):
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    text = {"source": str(root / "source"), "reference": str(root / "reference")}
    engines: dict[str, dict[str, Any]] = {
        "float32": {"kind": "ctranslate2", "run": str(root / "run"), "quantization": "float32", **text},
        "int8": {"kind": "ctranslate2", "run": str(root / "run"), **text},
        "itself": {"kind": "zeromt", "runs": [str(root / "run")]},
    }
    for name, engine in engines.items():
        (root / f"{name}.yaml").write_text(json.dumps({**engine, "search": SEARCH}))
    return root


def files(folder: Path) -> list[str]:
    return ["--source", str(folder / "source"), "--reference", str(folder / "reference")]


def report(folder: Path, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["evaluate", *files(folder), "-o", str(folder / "out"), *options]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


def test_an_export_has_the_scores_of_its_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2")
    search = ["--max-length-ratio", "1", "--max-length-extra", "2"]
    of_run = report(folder, capfd, str(folder / "run"), *search)
    translations = (folder / "out").read_text()
    assert of_run["sentences_per_second"] > 0
    found = report(folder, capfd, "--engine", str(folder / "float32.yaml"))
    assert (folder / "out").read_text() == translations
    scores = ("bleu", "bleu_signature", "chrf", "chrf_signature", "pairs")
    assert {key: found[key] for key in scores} == {key: of_run[key] for key in scores}
    assert found["holes"] == 0
    found = report(folder, capfd, "--engine", str(folder / "int8.yaml"), "--metrics", "bleu")
    assert found["engine"]["quantization"] == "int8"
    assert speed(12, 0.5) == {"seconds": 0.5, "sentences_per_second": 24.0}


def test_a_line_without_a_translation_is_an_empty_one(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "long").write_text(f"{'word ' * 3000}\n\n{ENGLISH[0]}\n")
    (folder / "short").write_text("".join(f"{line}\n" for line in FRENCH[:3]))
    words = ["evaluate", "--engine", str(folder / "itself.yaml"), "--metrics", "bleu", "-o", str(folder / "out")]
    assert main([*words, "--source", str(folder / "long"), "--reference", str(folder / "short")]) == 0
    found = json.loads(capfd.readouterr().out)
    lines = (folder / "out").read_text().split("\n")[:-1]
    assert (found["pairs"], found["holes"], [bool(line) for line in lines]) == (3, 1, [False, False, True])
    assert found["bleu"] == pytest.approx(BLEU().corpus_score(lines, [FRENCH[:3]]).score, abs=0.005)
