"""NLLB as today's Transformers saves it, with `tokenizer.json` alone, cuts every text as Transformers does."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.zeromt.exporting.made import ENGLISH, FRENCH
from tests.zeromt.importing.made import edit, imported, refusal, resave, save_nllb
from tests.zeromt.importing.test_importing import check_same
from zeromt.importing.pieces import read_vocabularies

HARD = [
    *ENGLISH[:9], *FRENCH[:9], "", "  two  spaces\tand a tab", "caf\u00e9 cafe\u0301 \ufb01ne \u00bd \u2460 \uff21",
    "\u4e2d\u6587 \U0001f600 \U0001f600\U0001f600x", "hahahahaha aaaaaaa ....... !!!!! 000000", "\u2581the\u2581cat",
    "a\u00a0b\u2028c\u3000d", "\u0130 \u00df \u017f \ufdfa", "x" * 300, "the-cat, the.cat; (the cat)", "</s",
    "\u0928\u094d\u0926\u093f",
]  # fmt: skip


@pytest.fixture(scope="module")
def resaved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nllb")
    save_nllb(root / "old")
    resave(root / "old", root / "new")
    assert not (root / "new" / "sentencepiece.bpe.model").exists()
    return root / "new"


@pytest.fixture
def copy(resaved: Path, tmp_path: Path) -> Path:
    shutil.copytree(resaved, tmp_path / "theirs")
    return tmp_path / "theirs"


def lines() -> list[str]:
    generator = random.Random(0)
    letters = "theca sn.'-dog4\u00e9"
    drawn = ["".join(generator.choices(letters, k=generator.randint(1, 40))) for _ in range(500)]
    return [*HARD, *(line.rstrip() for line in drawn)]  # Transformers makes a piece of white space at the end


def pieces_of(folder: Path, texts: list[str]) -> list[list[int]]:
    """Ids of Transformers' vocabulary, as an import cuts the texts."""
    config = json.loads((folder / "config.json").read_text())
    side = read_vocabularies(folder, config, sizes=(config["vocab_size"],) * 2)
    return [[side.source.rows[i] for i in ids] for ids in side.tokenizer.encode_source(texts)]


def test_cuts_as_transformers_does(resaved: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(resaved)
    expected = [theirs(text, add_special_tokens=False)["input_ids"] for text in lines()]
    assert pieces_of(resaved, lines()) == expected
    assert len({i for ids in expected for i in ids}) > 40
    assert pieces_of(resaved, ["the cat  "]) == pieces_of(resaved, ["the cat"]), "as SentencePiece and NLLB have it"


def test_computes_as_transformers_does(resaved: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(resaved).eval()
    check_same(resaved, theirs, [20, 9, 12, 30, 2], [1, 5, 8, 40])


def test_merges_as_older_versions_wrote_them(copy: Path, resaved: Path) -> None:
    tree = json.loads((copy / "tokenizer.json").read_text())
    tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]
    edit(copy / "tokenizer.json", **tree)
    assert pieces_of(copy, lines()) == pieces_of(resaved, lines())


def test_a_unigram_model_keeps_its_scores(copy: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tree = json.loads((copy / "tokenizer.json").read_text())
    names = sorted(tree["model"]["vocab"], key=tree["model"]["vocab"].get)
    generator = random.Random(1)
    vocabulary = [(name, 0.0 if i < 4 else -generator.uniform(3, 12)) for i, name in enumerate(names)]
    model = {"type": "Unigram", "unk_id": 3, "vocab": vocabulary, "byte_fallback": False}
    edit(copy / "tokenizer.json", **{**tree, "model": model})
    theirs = tokenizers.Tokenizer.from_file(str(copy / "tokenizer.json"))
    plain = [line for line in lines() if line.isascii()]
    assert pieces_of(copy, plain) == [theirs.encode(line, add_special_tokens=False).ids for line in plain]


def test_a_file_that_contradicts_the_sentencepiece_model(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_nllb(tmp_path / "old")
    model = (tmp_path / "old" / "sentencepiece.bpe.model").read_bytes()
    (copy / "sentencepiece.bpe.model").write_bytes(model)
    imported(copy, tmp_path / "run", capsys)
    tree = json.loads((copy / "tokenizer.json").read_text())
    vocabulary = {name: {10: 11, 11: 10}.get(i, i) for name, i in tree["model"]["vocab"].items()}
    edit(copy / "tokenizer.json", **{**tree, "model": {**tree["model"], "vocab": vocabulary}})
    assert "in tokenizer.json; delete the one that is not this model's" in refusal(copy, tmp_path / "other", capsys)
