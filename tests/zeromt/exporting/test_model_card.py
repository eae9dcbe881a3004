import dataclasses
import json
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.made import make_run
from trainer.inference.loading import TrainedModel, load_trained
from trainer.runs.layout import METRICS_FILE, STATE
from zeromt.exporting.model_card import card

EVIL = '1 |\n\n# Free <a href="x">gift</a> ![p](http://t.example/x) `` ` `` </td>\x1b[31m\x9b\x7f\u202e\u2028---\n- *b*'
Planted = Callable[[TrainedModel], TrainedModel]


def of_config(**changes: Any) -> Planted:
    def plant(trained: TrainedModel) -> TrainedModel:
        prepare = dataclasses.replace(trained.config.prepare, **{k: v for k, v in changes.items() if k != "name"})
        config = dataclasses.replace(trained.config, prepare=prepare, name=changes.get("name", "run"))
        return dataclasses.replace(trained, config=config)

    return plant


def of_manifest(**changes: Any) -> Planted:
    def plant(trained: TrainedModel) -> TrainedModel:
        trained.checkpoint.manifest.update(changes)
        return trained

    return plant


def of_scores(name: str = "BLEU", signature: str = "nrefs:1|case:mixed") -> Planted:
    def plant(trained: TrainedModel) -> TrainedModel:
        line = {"kind": "evaluation", "step": trained.checkpoint.manifest["step"], name: 1.0}
        content = json.dumps({**line, f"{name}_signature": signature})
        (trained.checkpoint.folder.parent.parent / METRICS_FILE).write_text(f"{content}\n")
        trained.checkpoint.manifest["files"][STATE] = {"bytes": 0, "sha256": ""}
        return trained

    return plant


def fingerprints(data: Sequence[str] = ("a" * 64,), tokenizer: str = "b" * 64) -> Planted:
    return of_manifest(fingerprints={"data": list(data), "tokenizer": tokenizer})


def of_sources(text: str) -> Planted:
    entry = {"files": [text], "pairs": 3, "licence": text, "attribution": text}
    return of_manifest(sources=[entry, {**entry, "licence": None}])


PLACES = {
    "name": (of_config(name=EVIL), of_config(name="run")),
    "source": (of_config(source_language=EVIL), of_config(source_language="en")),
    "target": (of_config(target_language=EVIL), of_config(target_language="en")),
    "package": (of_manifest(versions={EVIL: "1"}), of_manifest(versions={"torch": "1"})),
    "version": (of_manifest(versions={"torch": EVIL}), of_manifest(versions={"torch": "1"})),
    "data": (fingerprints(data=[EVIL]), fingerprints()),
    "tokenizer": (fingerprints(tokenizer=EVIL), fingerprints()),
    "curve": (of_scores(name=EVIL), of_scores()),
    "signature": (of_scores(signature=EVIL), of_scores()),
    "sources": (of_sources(EVIL), of_sources("x")),
}


def marks(text: str) -> Counter[str]:
    """How often each kind of mark stands in a Markdown text, but code within a line."""

    def walk(tokens: Sequence[Token]) -> list[str]:
        return [kind for one in tokens for kind in (one.type, *walk(one.children or ()))]

    parser = MarkdownIt("gfm-like", {"linkify": False})
    return Counter(kind for kind in walk(parser.parse(text)) if kind not in ("text", "code_inline", "text_special"))


@pytest.fixture(scope="module")
def made(joint: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "run"
    make_run(folder, joint)
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_text_of_a_checkpoint_is_no_markup(place: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "run")
    loaded = [load_trained(tmp_path / "run") for _ in PLACES[place]]
    cards = [
        card(plant(trained), format="ctranslate2", rounding=None).split("---\n", 2)
        for plant, trained in zip(PLACES[place], loaded, strict=True)
    ]
    planted, usual = (marks(text) for _, _, text in cards)
    assert planted == usual
    assert usual["table_open"] == 1 + (place in ("sources", "curve", "signature"))
    assert "Free" in cards[0][2] or place in ("data", "tokenizer")  # of which only the beginning is shown
    assert not [c for c in "".join(cards[0]) if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    assert yaml.safe_load(cards[0][1]).keys() == yaml.safe_load(cards[1][1]).keys()


def test_sources_that_are_none(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "run")
    trained = of_manifest(sources=[{"files": 3}])(load_trained(tmp_path / "run"))
    assert "What the checkpoint has of them cannot be read." in card(trained, format="ctranslate2", rounding=None)
