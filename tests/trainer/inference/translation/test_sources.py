"""What `zeromt translate` and `evaluate` say of odd sources; what is blank but for a tag is blank."""

from collections import Counter
from pathlib import Path

import pytest

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.tokenizer import Tokenizer
from tests.data_pipeline.preparation.raw.test_bombs import packed
from tests.trainer.conftest import TrainedRun
from trainer.inference.translation.languages import LanguageTags, encode_source
from trainer.inference.translation.sources import SourceCounts
from zeromt.cli.main import main
from zeromt.translator import engine

LINES = [f"the cat {number} sat" for number in range(100)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    section = TokenizerSection(vocab_size=60, threads=1, tags=[">>fra<<", ">>deu<<"])
    return train_tokenizer(section, LINES, [line.upper() for line in LINES])


@pytest.mark.parametrize("is_both_sides", [False, True])
def test_a_tag_alone_is_a_blank_line(tokenizer: Tokenizer, is_both_sides: bool) -> None:
    tags = LanguageTags(source=tokenizer.tag_id(">>deu<<"), target=0) if is_both_sides else None
    for blank in ("", " ", "\x85", "\u2028 \x1c", ">>fra<<", ">>fra<< ", ">>fra<< \u200b", "\ufeff>>fra<<  "):
        assert encode_source(tokenizer, [blank], tags) == [[]], blank
    [row] = encode_source(tokenizer, [">>fra<< cat"], tags)
    assert encode_source(tokenizer, ["\ufeff>>fra<< cat"], tags) == [row]
    assert row[0] == tokenizer.tag_id(">>fra<<")
    assert len(row) > 1


def test_tags_that_are_text(tokenizer: Tokenizer) -> None:
    counts = SourceCounts()
    lines = [">>fra<< a", " >>fra<< a", ">>xyz<< a", "\ufeff>>deu<< a", "a >>fra<<", ">>xyz<<", "", "the >> cat << sat"]
    counts.note(tokenizer, lines, tokenizer.encode_source(lines), 100)
    assert counts.tags == Counter({">>xyz<<": 2, ">>fra<<": 1})
    other = SourceCounts(truncated=3)
    other.add(counts)
    other.add(counts)
    said = "\n".join(other.warnings(tokenizer, 7))
    assert "3 lines are longer than model.max_positions=7" in said
    assert "4 source lines begin with >>xyz<<, which is not a tag of the model" in said
    assert "2 source lines begin with >>fra<<, which has white space before it" in said
    assert "(the model's tags, at the very start of a line: >>fra<<, >>deu<<)" in said


def test_what_the_commands_say(
    trained: TrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "tune_process", lambda: None)  # not for the process of the tests
    lines = trained.source.read_text().splitlines()[:2]
    plain, odd, reference = (tmp_path / name for name in ("plain", "odd", "reference"))
    plain.write_text("\n".join([*lines, "\n"]))
    odd.write_text("\ufeff" + "\n".join([*lines, ">>fra<< мы идём в школу", "\n"]))
    reference.write_text("a\nb\nc\n\n")
    for path, tag in ((plain, False), (odd, True)):
        assert main(["translate", str(trained.folder), "--processes", "1", "-i", str(path)]) == 0
        output = capsys.readouterr()
        assert ("1 source lines begin with >>fra<<" in output.err) == tag
        assert ("are unknown to the tokenizer" in output.err) == tag
        if not tag:
            translations = output.out.splitlines()[:2]
        assert output.out.splitlines()[:2] == translations
    assert main(["evaluate", str(trained.folder), "--source", str(odd), "--reference", str(reference)]) == 0
    assert "1 source lines begin with >>fra<<" in capsys.readouterr().err


def test_one_endless_line(trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path / "text.gz", b"a" * (1 << 20))
    assert main(["translate", str(trained.folder), "--processes", "1", "-i", str(path)]) == 2
    assert "more than 16777216 bytes" in capsys.readouterr().err
