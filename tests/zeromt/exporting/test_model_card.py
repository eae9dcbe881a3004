"""README.md of an export: text of a checkpoint is shown, and is never markup."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.made import make_run
from trainer.inference.loading import TrainedModel, load_trained
from zeromt.exporting.model_card import card

EVIL = '1 |\n\n# Free <a href="x">gift</a> ![p](http://t.example/x) `` ` `` </td>\x1b[31m\x9b\x7f\u202e\u2028---\n- *b*'


def planted(run: Path, text: str, language: str) -> TrainedModel:
    """A model whose checkpoint has a text wherever the card shows some."""
    trained = load_trained(run)
    prepare = dataclasses.replace(trained.config.prepare, source_language=language, target_language=language)
    entry = {"files": [text], "pairs": 3, "licence": text, "attribution": text}
    trained.checkpoint.manifest.update(
        versions={text: text},
        fingerprints={"data": [text], "tokenizer": text},
        sources=[entry, {**entry, "licence": None}],
    )
    return dataclasses.replace(trained, config=dataclasses.replace(trained.config, prepare=prepare, name=text))


def marks(text: str) -> Counter[str]:
    """How often each kind of mark stands in a Markdown text, but code within a line."""

    def walk(tokens: Sequence[Token]) -> list[str]:
        return [kind for one in tokens for kind in (one.type, *walk(one.children or ()))]

    parser = MarkdownIt("gfm-like", {"linkify": False})
    return Counter(kind for kind in walk(parser.parse(text)) if kind not in ("text", "code_inline", "text_special"))


def test_text_of_a_checkpoint_is_no_markup(joint: Tokenizer, tmp_path: Path) -> None:
    make_run(tmp_path / "run", joint)
    given = (planted(tmp_path / "run", text, language) for text, language in ((EVIL, EVIL), ("x", "en")))
    evil, usual = (card(one, rounding=None).split("---\n", 2) for one in given)
    assert marks(evil[2]) == marks(usual[2])
    assert marks(usual[2])["table_open"] == 2
    assert evil[2].count("Free") > 6
    assert not [c for c in "".join(evil) if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    assert yaml.safe_load(evil[1]).keys() == yaml.safe_load(usual[1]).keys()
