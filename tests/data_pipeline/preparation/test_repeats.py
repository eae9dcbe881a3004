"""Training pairs that nearly repeat held-out ones: found in every preparation, said, and not written down."""

import dataclasses
import gzip
import random
from pathlib import Path

import pytest

from configs import CorpusFiles
from data_pipeline.preparation import prepare
from data_pipeline.preparation.repeats import HeldOutRepeats
from tests.conftest import contents
from tests.data_pipeline.conftest import BUNDLED
from tests.data_pipeline.preparation.edits import edited, similarity
from tests.data_pipeline.preparation.made import PAIRS, Corpus


def test_against_sets_of_shingles() -> None:
    """Of planted edits; what is found is always right, and few are missed."""
    files = [gzip.decompress((BUNDLED / f"valid.{code}.gz").read_bytes()) for code in ("en", "fr")]
    held_out = list(zip(*(file.decode().splitlines() for file in files), strict=True))
    draw = random.Random(3)
    planted = [(edited(source, draw), edited(target, draw)) for source, target in held_out]
    found = set(HeldOutRepeats(held_out).find(*map(list, zip(*planted, strict=True))))
    own = zip(planted, held_out, strict=True)
    wanted = {row for row, pairs in enumerate(own) if min(map(similarity, *pairs)) >= 0.8}
    assert len(wanted) > 300
    assert len(found & wanted) > 0.93 * len(wanted)
    near_others = [row for row in found - wanted if max(_near(planted[row], pair) for pair in held_out) < 0.8]
    assert near_others == []


def _near(pair: tuple[str, str], other: tuple[str, str]) -> float:
    return min(map(similarity, pair, other))


def test_any_script_and_lines_of_nothing() -> None:
    chinese = "他们昨天在北京大学的图书馆里看了一整天的书"
    held_out = [(chinese, "un"), ("", ""), ("a", "b"), ("a line of\nseveral words and an end", "x")]
    find = HeldOutRepeats(held_out).find
    assert find([f"{chinese}。", "", "\u200b", "a", "B", "A line of several words and an end!"], [*"uuuubx"]) == [5]
    assert find([chinese, "a"], ["un", "b"]) == [0, 1]
    assert find([], []) == HeldOutRepeats([]).find(["a"], ["b"]) == []


def test_it_is_said_and_no_byte_depends_on_it(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.en").write_text("THE cat number 7  sat!\nsomething else\n")
    (tmp_path / "v.fr").write_text("le chat numéro 7 assis !\nautre chose\n")
    section = corpus(PAIRS, valid=CorpusFiles(source=["v.en"], target=["v.fr"]))
    prepare.run(section)
    said = capsys.readouterr().err
    assert (
        "warning: prepare.train: pairs that repeat a held-out pair, or nearly do: 1 (train.en: line 8: 'the cat "
        in said
    )
    wanted = contents(tmp_path / "out")
    assert b"repeat" not in wanted["report.json"]
    (tmp_path / "v.fr").write_text("le chat numéro 7 debout\nautre chose\n")
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "other")))
    assert "repeat" not in capsys.readouterr().err
    assert contents(tmp_path / "other")["report.json"] == wanted["report.json"]
