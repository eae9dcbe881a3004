"""A dataset is compared with the section that is to describe it: by its settings, and by the names of files."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.recipe import stale_error, stale_fields
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import Corpus

PAIRS = [(f"the cat number {n} sat", f"le chat numéro {n} assis") for n in range(100)]


@pytest.fixture
def made(corpus: Corpus, tmp_path: Path) -> PrepareSection:
    """The section of a dataset that is there."""
    (tmp_path / "v.en").write_text("a cat\n")
    (tmp_path / "v.fr").write_text("un chat\n")
    section = corpus(PAIRS, valid=CorpusFiles(source=["v.en"], target=["v.fr"]))
    prepare.run(section)
    return section


def _check(section: PrepareSection, folder: str) -> None:
    if fields := stale_fields(section, Dataset.load(folder).index):
        raise stale_error(fields, folder, "zeromt prepare my.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target_language": "fr"}, "prepare.target_language: fr, the dataset has de"),
        ({"max_pieces": 100}, "prepare.max_pieces: 100, the dataset has 512"),
        ({"pairs_per_block": 9}, "prepare.pairs_per_block: 9, the dataset has null"),
        ({"target_tag": ">>fra<<"}, "prepare.target_tag: >>fra<<, the dataset has null"),
        ({"tag_both_sides": True}, "prepare.tag_both_sides: true, the dataset has false"),
        ({"tokenizer": TokenizerSection(vocab_size=65)}, "prepare.tokenizer.vocab_size: 65, the dataset has 64"),
        ({"tokenizer": TokenizerSection(path="no")}, "prepare.tokenizer.path: no, the dataset has a tokenizer of"),
        ({"cleaning": CleaningSection(duplicates="drop")}, "prepare.cleaning.duplicates: drop, the dataset has keep"),
        ({"train": CorpusFiles(tsv=["b.tsv"])}, "prepare.train: b.tsv, the dataset has train.en, train.fr"),
        ({"train": CorpusFiles(source=["train.fr"], target=["train.en"])}, "prepare.train: train.fr, train.en, the"),
        ({"valid": CorpusFiles()}, "prepare.valid: none, the dataset has v.en, v.fr"),
        ({"test": CorpusFiles(tsv=["t.tsv"])}, "prepare.test: t.tsv, the dataset has none"),
        # a section that names no training text describes no preparation: defaults say nothing, the rest must be true
        ({"train": CorpusFiles(), "target_language": "fr"}, "prepare.target_language: fr, the dataset has de"),
    ],
)
def test_what_is_false_is_named(made: PrepareSection, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        _check(dataclasses.replace(made, **change), made.output)
    assert said in str(caught.value)
    assert str(caught.value).count(", the dataset has ") == 1
    assert "run `zeromt prepare my.yaml` with another prepare.output" in str(caught.value)


def test_what_does_not_matter(made: PrepareSection, tmp_path: Path) -> None:
    threads = dataclasses.replace(made.tokenizer, threads=7)
    same = dataclasses.replace(made, root="/gone", output="x", workers=3, tokenizer=threads, max_unknown=1)
    _check(same, made.output)
    other_codes = dataclasses.replace(made, source_language="eng_Latn", target_language="ger", max_unknown=0.5)
    _check(other_codes, made.output)
    prepare.run(other_codes)  # it is there already
    blocks = dataclasses.replace(made, pairs_per_block=9, output=str(tmp_path / "blocks"))
    prepare.run(blocks)
    _check(made, blocks.output)
    _check(PrepareSection(output=made.output), made.output)
    moved = Path(shutil.move(made.output, tmp_path / "moved"))
    (tmp_path / "train.en").unlink()
    _check(made, str(moved))


def test_an_existing_tokenizer(made: PrepareSection, corpus: Corpus, tmp_path: Path) -> None:
    taken = corpus(PAIRS, output=str(tmp_path / "taken"), tokenizer=TokenizerSection(path=made.output))
    prepare.run(taken)
    _check(taken, taken.output)
    _check(dataclasses.replace(made, tokenizer=TokenizerSection(path=made.output)), made.output)  # its own
    _check(dataclasses.replace(taken, tokenizer=made.tokenizer), taken.output)  # trained as this says, for the other
    with pytest.raises(UserError, match=r"prepare.tokenizer.path: null, the dataset has another existing tokenizer"):
        _check(dataclasses.replace(taken, tokenizer=TokenizerSection()), taken.output)
    other = corpus(PAIRS, output=str(tmp_path / "other"), tokenizer=TokenizerSection(vocab_size=60, threads=1))
    prepare.run(other)
    with pytest.raises(UserError, match=r"prepare.tokenizer"):
        _check(dataclasses.replace(taken, tokenizer=TokenizerSection(path=other.output)), taken.output)
    shutil.rmtree(made.output)
    _check(taken, taken.output)  # the tokenizer is gone, which is no change
