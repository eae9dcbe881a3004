"""A dataset is compared with the section that is to describe it: by its settings, and by the names of files."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from configs import CleaningSection, CorpusFiles, PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.readers.lines import Tsv
from data_pipeline.preparation.recipe import stale_error, stale_fields
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import PAIRS, Corpus


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
        ({"target_language": "fr"}, "prepare.target_language: fr, the dataset has de;"),
        ({"pairs_per_block": 9}, "prepare.pairs_per_block: 9, the dataset has null;"),
        ({"tokenizer": TokenizerSection(vocab_size=65)}, "prepare.tokenizer.vocab_size: 65, the dataset has 64;"),
        ({"cleaning": CleaningSection(duplicates="drop")}, "prepare.cleaning.duplicates: drop, the dataset has keep;"),
        ({"valid": CorpusFiles()}, 'prepare.valid.source: [], the dataset has ["v.en"]; prepare.valid.target: []'),
        ({"test": CorpusFiles(files=["t.tsv"], reader=Tsv())}, 'prepare.test.files: ["t.tsv"], the dataset has [];'),
        # a section that names no training text describes no preparation: defaults say nothing, the rest must be true
        ({"train": CorpusFiles(), "target_language": "fr"}, "prepare.target_language: fr, the dataset has de;"),
    ],
)
def test_what_is_false_is_named(made: PrepareSection, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        _check(dataclasses.replace(made, **change), made.output)
    assert str(caught.value).startswith(said)
    assert "run `zeromt prepare my.yaml` with another prepare.output" in str(caught.value)


def test_what_does_not_matter(made: PrepareSection, tmp_path: Path) -> None:
    threads = dataclasses.replace(made.tokenizer, threads=7)
    same = dataclasses.replace(made, root="/gone", output="x", workers=3, tokenizer=threads, max_unknown=1)
    _check(same, made.output)
    blocks = dataclasses.replace(made, pairs_per_block=9, output=str(tmp_path / "blocks"))
    prepare.run(blocks)
    _check(made, blocks.output)
    _check(PrepareSection(output=made.output), made.output)
    moved = Path(shutil.move(made.output, tmp_path / "moved"))
    (tmp_path / "train.en").unlink()
    _check(made, str(moved))


def test_an_existing_tokenizer_is_not_compared(made: PrepareSection, corpus: Corpus, tmp_path: Path) -> None:
    taken = corpus(PAIRS, output=str(tmp_path / "taken"), tokenizer=TokenizerSection(path=made.output))
    prepare.run(taken)
    for tokenizer in (taken.tokenizer, made.tokenizer, TokenizerSection(path="gone")):
        _check(dataclasses.replace(taken, tokenizer=tokenizer), taken.output)


def test_the_same_again_is_quick_and_another_is_refused(
    made: PrepareSection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    prepare.run(dataclasses.replace(made, workers=2, max_unknown=0.5))
    assert "already prepared from the same input, 200 pairs" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"holds another dataset \(max_pieces was 512 and is 9\); choose another"):
        prepare.run(dataclasses.replace(made, max_pieces=9))
    (tmp_path / "v.fr").write_text("un chien\n")
    with pytest.raises(UserError, match=r"holds another dataset \(valid: another content of v.fr\)"):
        prepare.run(made)
