"""What the dataset will not have does not train its tokenizer."""

import base64
import random
from pathlib import Path

from configs import CleaningSection
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import PAIRS, Corpus

BASE64 = base64.b64encode(random.Random(1).randbytes(30_000)).decode()


def _tokenizer(folder: Path) -> str:
    return Dataset.load(folder).tokenizer_fingerprint


def test_a_line_that_is_dropped_for_its_length_trains_nothing(corpus: Corpus, tmp_path: Path) -> None:
    prepare.run(corpus(PAIRS))
    for number, line in enumerate([(BASE64, "Voir le fichier joint."), ("See what is attached.", BASE64)]):
        prepare.run(corpus([*PAIRS[:100], line, *PAIRS[100:]], output=str(tmp_path / f"junk{number}")))
        found = Dataset.load(tmp_path / f"junk{number}")
        assert found.tokenizer_fingerprint == _tokenizer(tmp_path / "out")
        assert found.index.dropped["too long"] == 1


def test_a_long_line_that_may_be_kept_trains_as_ever(corpus: Corpus, tmp_path: Path) -> None:
    """16 characters for each piece that a pair may have."""
    line = ("☃" * 160, "neige")
    for most in (10, 9):
        prepare.run(corpus([*PAIRS, line], output=str(tmp_path / f"{most}"), max_pieces=most))
        tokenizer = Dataset.load(tmp_path / f"{most}").tokenizer
        assert (tokenizer.decode_target(tokenizer.encode_target(["☃"])) == ["☃"]) == (most == 10)


def test_a_duplicate_that_is_dropped_counts_once(corpus: Corpus, tmp_path: Path) -> None:
    copies = [*PAIRS, *[("☃☃☃ snow falls", "☃☃☃ la neige tombe")] * 500]
    drop = {"cleaning": CleaningSection(duplicates="drop")}
    prepare.run(corpus(copies[:201], output=str(tmp_path / "once")))
    prepare.run(corpus(copies, output=str(tmp_path / "kept")))
    prepare.run(corpus(copies, output=str(tmp_path / "dropped"), **drop))
    assert _tokenizer(tmp_path / "dropped") == _tokenizer(tmp_path / "once") != _tokenizer(tmp_path / "kept")
