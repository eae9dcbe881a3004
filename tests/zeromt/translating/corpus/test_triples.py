"""The best and the worst candidate of each line, and what has none."""

import json
import sys
from pathlib import Path

import pytest

from tests.zeromt.translating.corpus.conftest import Translate
from zeromt.translating.corpus.triples import CLOSE, SINGLE, TIED

ANSWERS = {
    "a": ["bb", "b", "bbb"],
    "one": ["c"],
    "same": ["d", "d"],
    "tied": ["ee", "ff"],
    "close": ["gg", "g"],
    "empty": ["", "h"],
}
ENGINE = f"""
import json, sys
answers = {ANSWERS!r}
for line in sys.stdin:
    asked = json.loads(line)
    found = dict(id=asked["id"], candidates=answers[asked["source"]])
    print(json.dumps(found), flush=True)
"""
LENGTH = "import sys; [print(len(line.split(chr(9))[1]) - 1) for line in sys.stdin]"
WORDS = ("--engine", "engine.yaml", "-i", "in", "-o", "out", "--candidates", "3")
QUALITY = ("--quality", f"{sys.executable} -c '{LENGTH}'")
MERGE = ("--merge", "--choose", "triples")


@pytest.fixture
def translated(translate: Translate) -> Translate:
    Path("engine.py").write_text(ENGINE)
    command = {"kind": "command", "command": [sys.executable, "engine.py"]}
    Path("engine.yaml").write_text(json.dumps(command))
    Path("in").write_text("".join(f"{line}\n" for line in ("a", "", *list(ANSWERS)[1:])))
    assert translate(*WORDS, "--part", "1/1", *QUALITY) == 0
    return translate


def test_a_line_has_a_triple_if_its_candidates_differ(
    translated: Translate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert translated(*WORDS, *QUALITY, *MERGE, "--min-margin", "1.5") == 0
    triples = [json.loads(line) for line in Path("out/triples.jsonl").read_text().splitlines()]
    assert triples == [{"line": 1, "source": "a", "chosen": "bbb", "rejected": "b", "margin": 2.0}]
    said = f"1 triples; lines without one: 4 {SINGLE}, 1 {TIED}, 1 {CLOSE}"
    assert said in capsys.readouterr().out
    assert translated(*WORDS, *QUALITY, *MERGE, "--to", "two.jsonl") == 0
    assert [json.loads(line)["source"] for line in Path("two.jsonl").read_text().splitlines()] == ["a", "close"]


def test_what_makes_no_triples(translated: Translate, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        capsys.readouterr()
        assert translated(*words) == 2
        [line] = capsys.readouterr().err.strip().splitlines()
        return line

    assert "--choose: triples without scores; give --mbr or --quality" in refused(*WORDS, *MERGE)
    assert "-o: line 1: its candidates have no scores" in refused(*WORDS, *MERGE, "--mbr", "chrf")
    assert "--min-margin: without --choose triples" in refused(*WORDS, *QUALITY, "--merge", "--min-margin", "1")
    one = (*WORDS[:5], "one", "--candidates", "1", *QUALITY)
    assert translated(*one, "--part", "1/1") == 0
    assert "--choose: triples of one candidate" in refused(*one, *MERGE)
    assert f"--choose: triples of no line: 4 {SINGLE}" in refused(*WORDS, *QUALITY, *MERGE, "--min-margin", "9")
    Path("other").write_text("a\nother\n")
    assert "--input: other: line 2 is not" in refused(
        "--engine", "engine.yaml", "-i", "other", *WORDS[4:], *QUALITY, *MERGE
    )
    Path("in").write_text(Path("in").read_text().replace("tied", "edit"))
    assert "--input: in: line 5 is not" in refused(*WORDS, *QUALITY, *MERGE)
