"""Candidates are put in another order."""

import itertools
from pathlib import Path

import pytest

from tests.conftest import Refused
from tests.zeromt.translating.conftest import Translate
from tests.zeromt.translating.test_parts import SEARCH, lines_of
from zeromt.translating.mbr import expected_utilities

SAMPLED = ("--sample", "--epsilon", "0.01", "--temperature", "2", "--candidates", "5")


def test_minimum_bayes_risk(
    translate: Translate, run: str, lines: list[str], refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (run, "-i", "in.en", "-o", "out", *SEARCH, *SAMPLED)
    for number in (1, 2):
        assert translate(*words, "--part", f"{number}/2") == 0
    assert translate(*words, "--merge", "--choose", "all") == 0
    plain = _by_line()
    capsys.readouterr()
    said = refused("translate", *words, "--merge", "--mbr", "chrf")
    assert "engine.mbr: \"chrf\", and 'out' was begun with null" in said
    by_risk = (*words[:3], "-o", "ranked", *words[5:], "--mbr", "chrf")
    assert translate(*by_risk, "--part", "1/1") == 0
    assert translate(*by_risk, "--merge", "--choose", "all") == 0
    for texts, found in zip(plain, _by_line("ranked"), strict=True):
        utilities = expected_utilities(texts, "chrf")
        assert sorted(found) == sorted(texts)
        assert utilities[texts.index(found[0])] == max(utilities)


def _by_line(out: str = "out") -> list[list[str]]:
    """The candidates of each line that has some."""
    pairs = zip(lines_of(".source", f"{out}/translations"), lines_of("", f"{out}/translations"), strict=True)
    groups = itertools.groupby((pair for pair in pairs if pair[1]), lambda pair: pair[0])
    return [[text for _, text in group] for _, group in groups]


def test_lines_for_people(translate: Translate, run: str, lines: list[str], refused: Refused) -> None:
    plain = [line for line in lines if len(line) < 200]
    Path("in.en").write_text("".join(f"{line}\n" for line in plain))
    assert translate(run, "-i", "in.en", "-o", "mbr.txt", *SEARCH[:4], *SAMPLED, "--mbr", "chrf") == 0
    words = (run, "-i", "in.en", "-o", "out", *SEARCH, *SAMPLED, "--mbr", "chrf")
    assert translate(*words, "--part", "1/1") == 0
    assert translate(*words, "--merge") == 0
    assert Path("mbr.txt").read_text() == Path("out/translations.txt").read_text()
