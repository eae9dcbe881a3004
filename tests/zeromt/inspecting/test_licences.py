"""Licences and attributions: from the files of a corpus to what is made of it, the model card of an export included."""

import json
import shutil
from pathlib import Path

import pytest

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import Refused
from tests.forked import Forked
from tests.small import FILES
from zeromt.cli.main import main

SOURCES = "{source: [a.en, b.en], target: [a.fr, b.fr], licence: [CC-BY-4.0, null], attribution: 'Tatoeba, 2024'}"
PREPARE = ("prepare", "small.yaml", "prepare.workers=1", "prepare.tokenizer.threads=1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(FILES / "corpus", tmp_path / "corpus")
    shutil.copy(FILES / "small.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shards(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(name).iterdir() if path.name != "index.json"}


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
def test_they_change_nothing_but_the_index(folder: Path, duplicates: str, refused: Refused) -> None:
    settings = [f"prepare.cleaning.duplicates={duplicates}", "prepare.blocks_per_shard=2"]
    plain = "prepare.train={source: [a.en, b.en], target: [a.fr, b.fr]}"
    assert main([*PREPARE, *settings, "prepare.output=plain", plain]) == 0
    assert main([*PREPARE, *settings, "prepare.output=said", f"prepare.train={SOURCES}"]) == 0
    assert shards("plain") == shards("said")
    was, is_ = (json.loads(Path(name, "index.json").read_bytes()) for name in ("plain", "said"))
    said = is_["sources"]
    assert {**is_, "sources": None, "recipe": was["recipe"]} == was
    kept = Dataset.load("said").num_pairs
    assert [entry["files"] for entry in said] == [["a.en", "a.fr"], ["b.en", "b.fr"]]
    assert sum(entry["pairs"] for entry in said) == kept
    if duplicates == "keep":
        lines = len(Path("corpus/b.en").read_text().splitlines())
        assert 0 < said[1]["pairs"] <= lines
    assert [(entry["licence"], entry["attribution"]) for entry in said] == [
        ("CC-BY-4.0", "Tatoeba, 2024"),
        (None, "Tatoeba, 2024"),
    ]
    message = refused(*PREPARE, *settings, "prepare.output=said", plain, cwd=folder)
    assert "said holds another dataset (train.licence was ['CC-BY-4.0', None] and is None, " in message
    assert main([*PREPARE, *settings, "prepare.output=said", plain, "--replace"]) == 0
    [aside] = folder.glob("said.replaced-*")
    assert shards(str(aside)) == shards("plain")


def test_they_stand_in_the_card_of_a_model(folder: Path, forked: Forked) -> None:
    def train(*words: str) -> None:
        done = forked.zeromt("train", "small.yaml", *words, cwd=folder)
        assert done.code == 0, done.err

    assert main([*PREPARE, f"prepare.train={SOURCES}"]) == 0
    second = ["prepare.output=b", "prepare.tokenizer.path=dataset", "prepare.train={source: [b.en], target: [b.fr]}"]
    assert main([*PREPARE, *second]) == 0
    short = ["training.max_updates=2", "checkpoint.every_updates=1", "evaluation.every_updates=0"]
    train(f"prepare.train={SOURCES}", *short)
    train("name=child", "stream.datasets=[{path: b}]", *short, "--from", "runs/small")
    shutil.rmtree("dataset")
    shutil.rmtree("b")
    assert main(["average", "runs/child", "--last", "2", "-o", "mean"]) == 0
    both = [["a.en, a.fr", "CC-BY-4.0", "Tatoeba, 2024"], ["b.en, b.fr", "not recorded", "Tatoeba, 2024"]]
    for name, wanted in (("runs/small", both), ("mean", [*both, ["b", "not recorded", "not recorded"]])):
        assert main(["export", name, "--format", "ctranslate2", "-o", f"{name}-card"]) == 0
        table = Path(f"{name}-card", "README.md").read_text().partition("## Sources\n")[2].partition("\n## ")[0]
        head, _, *rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in table.strip().splitlines())
        assert head == ["files", "pairs", "licence", "attribution"]
        assert [[file, *said] for file, _, *said in rows] == [[f"<code>{file}</code>", *said] for file, *said in wanted]
