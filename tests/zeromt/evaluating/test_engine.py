"""`evaluate --engine`: an export, or any other program, has the scores that its translations have, as a run has."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.conftest import Refused
from tests.zeromt.exporting.made import ENGLISH, FRENCH, make_run, make_tokenizer
from zeromt.cli.main import main
from zeromt.evaluating.scoring import speed

SEARCH = {"max_length_ratio": 1.0, "max_length_extra": 2}
PROGRAM = """
import json, sys

for text in sys.stdin:
    line = json.loads(text)
    print(line["id"], file=open(sys.argv[1], "a"), flush=True)
    answer = {"error": "refused"} if "quick" in line["source"] else {"candidates": [line["source"].upper() + "\\n!"]}
    print(json.dumps({"id": line["id"], **answer}), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a set of twelve lines with a blank one, and engines: its exports, itself, and a program."""
    root = tmp_path_factory.mktemp("engines")
    make_run(root / "run", make_tokenizer(), seed=5)
    english = [*ENGLISH[:5], "", *ENGLISH[6:12]]
    for name, lines in (("source", english), ("reference", FRENCH[:12])):
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    (root / "program.py").write_text(PROGRAM)
    text = {"source": str(root / "source"), "reference": str(root / "reference")}
    engines: dict[str, dict[str, Any]] = {
        "float32": {"kind": "ctranslate2", "run": str(root / "run"), "quantization": "float32", **text},
        "int8": {"kind": "ctranslate2", "run": str(root / "run"), **text},
        "itself": {"kind": "zeromt", "runs": [str(root / "run")]},
    }
    trees = {name: {**engine, "search": SEARCH} for name, engine in engines.items()}
    command = [sys.executable, str(root / "program.py"), str(root / "asked")]
    trees["program"] = {"kind": "command", "command": command, "retries": 0, "name": "capitals"}
    for name, tree in trees.items():
        (root / f"{name}.yaml").write_text(json.dumps(tree))
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
    for name in ("float32", "itself"):
        found = report(folder, capfd, "--engine", str(folder / f"{name}.yaml"))
        assert (folder / "out").read_text() == translations
        scores = ("bleu", "bleu_signature", "chrf", "chrf_signature", "pairs")
        assert {key: found[key] for key in scores} == {key: of_run[key] for key in scores}
        assert found["holes"] == 0
    found = report(folder, capfd, "--engine", str(folder / "int8.yaml"), "--metrics", "bleu")
    assert found["engine"]["quantization"] == "int8"
    assert speed(12, 0.5) == {"seconds": 0.5, "sentences_per_second": 24.0}


def test_a_line_without_a_translation_is_an_empty_one(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--engine", str(folder / "program.yaml"), "--target-language", "fr", "--metrics", "bleu")
    found = report(folder, capfd, *options)
    lines = (folder / "out").read_text().split("\n")[:-1]
    sources = (folder / "source").read_text().split("\n")[:-1]
    assert lines == ["" if "quick" in line or not line else f"{line.upper()} !" for line in sources]
    assert (found["pairs"], found["holes"], found["engine"]["name"]) == (12, 3, "capitals")
    scored = BLEU()
    assert found["bleu"] == pytest.approx(scored.corpus_score(lines, [FRENCH[:12]]).score, abs=0.005)
    assert found["bleu_signature"] == str(scored.get_signature())
    asked = (folder / "asked").read_text().split()
    assert asked == ["1", *(str(n) for n in range(1, 13) if n != 6)], "one line before the clock starts"


def test_options_that_do_not_go_with_it(folder: Path, refused: Refused) -> None:
    words = ("evaluate", "--engine", str(folder / "program.yaml"))
    assert "--target-language: missing, and the engine is no run's" in refused(*words, *files(folder))
    assert "--reference: missing; with --engine, give both" in refused(*words, "--source", str(folder / "source"))
    for option in (["--set", "x"], ["--beam", "2"], ["--raw-weights"], ["--paragraphs"], ["--source-language", "en"]):
        assert f"{option[0]}: given with --engine" in refused(*words, *option)
    assert "RUN: given with --engine" in refused(*words, str(folder / "run"))
    assert "RUN: none given; give a run's folder, or --engine FILE" in refused("evaluate", *files(folder))
    given = (*words, *files(folder), "--target-language", "fr")
    assert "--output" in refused(*given, "-o", str(folder / "program.yaml"))
