"""Candidates are put in another order once, and chosen again without decoding."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Refused
from tests.zeromt.translating.corpus.conftest import Translate
from tests.zeromt.translating.corpus.test_parts import SEARCH, chunk, side
from zeromt.translating.corpus.records import read
from zeromt.translating.mbr import ranked

SAMPLED = ("--sample", "--epsilon", "0.01", "--temperature", "2", "--candidates", "5")
LONGEST = "import sys; [print(len(line.split(chr(9))[1])) for line in sys.stdin]"


def test_minimum_bayes_risk_and_a_command(
    translate: Translate, run: str, lines: list[str], refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (run, "-i", "in.en", "-o", "out", *SEARCH, *SAMPLED)
    for number in (1, 2):
        assert translate(*words, "--part", f"{number}/2") == 0
    decoded = chunk(0).stat().st_mtime_ns
    capsys.readouterr()
    assert "-o: line 1: its candidates have no scores ('out/scores/mbr-chrf/000/000000.json.zst'); run the parts" in (
        refused("translate", *words, "--merge", "--mbr", "chrf")
    )
    texts: dict[str, list[str]] = {}
    quality = f"{sys.executable} -c '{LONGEST}'"
    for name, more in (("chrf", ["--mbr", "chrf"]), ("bleu", ["--mbr", "bleu"]), ("long", ["--quality", quality])):
        assert translate(*words, *more, "--part", "1/1") == 0
        assert translate(*words, *more, "--merge") == 0
        texts[name] = Path("out/translations.txt").read_text().split("\n")[:-1]
    assert chunk(0).stat().st_mtime_ns == decoded
    found = [record for number in range(6) for record in read(chunk(number)).records]
    for row, record in enumerate(found):
        if record.candidates:
            assert texts["chrf"][row] == record.candidates[ranked(record.candidates, "chrf")[0]].text
            assert texts["bleu"][row] == record.candidates[ranked(record.candidates, "bleu")[0]].text
            assert len(texts["long"][row]) == max(len(" ".join(one.text.split())) for one in record.candidates)
        else:
            assert texts["chrf"][row] == texts["bleu"][row] == texts["long"][row] == ""
    [name] = [key for key in side()[1] if key.startswith("quality-")]
    assert side()[1][name] == len(texts["long"][0]) + 1  # the line feed, too


def test_lines_for_people(translate: Translate, run: str, lines: list[str], refused: Refused) -> None:
    plain = [line for line in lines if len(line) < 200]
    Path("in.en").write_text("".join(f"{line}\n" for line in plain))
    assert translate(run, "-i", "in.en", "-o", "mbr.txt", *SEARCH[:4], *SAMPLED, "--mbr", "chrf") == 0
    words = (run, "-i", "in.en", "-o", "out", *SEARCH, *SAMPLED, "--mbr", "chrf")
    assert translate(*words, "--part", "1/1") == 0
    assert translate(*words, "--merge") == 0
    assert Path("mbr.txt").read_text() == Path("out/translations.txt").read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--mbr", "chrf"], "--mbr: chrf with one candidate; give --candidates 16 or more"),
        (["--candidates", "4"], "--candidates: 4 without --mbr or --part; give one of them, or --n-best"),
        (["--quality", "true"], "--quality: without --part and --merge; give one of them"),
        (["--mbr", "bleu", "--candidates", "2", "--n-best", "2"], "--mbr: given with --n-best; give one of them"),
    ],
)
def test_options_that_do_not_fit(more: list[str], said: str, run: str, refused: Refused) -> None:
    assert said in refused("translate", run, "-o", "out", *more)


@pytest.mark.parametrize(
    ("quality", "said"),
    [
        ("no-such-program", "--quality: 'no-such-program' cannot be started: "),
        ("false", "--quality: 'false' ended with exit code 1; see what it printed"),
        ("echo 1", "--quality: 'echo 1' wrote 1 words for 2 lines; allowed is a finite number for each"),
    ],
)
def test_commands_that_do_not_score(
    quality: str, said: str, translate: Translate, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = "print(json.dumps({'id': json.loads(x)['id'], 'candidates': ['a']}), flush=True)"
    program = [sys.executable, "-c", f"import sys, json; [{answer} for x in sys.stdin]"]
    Path("engine.yaml").write_text(json.dumps({"kind": "command", "command": program}))
    Path("in").write_text("a\nb\n")
    words = ("--engine", "engine.yaml", "-i", "in", "-o", "out", "--part", "1/1")
    assert translate(*words) == 0
    capsys.readouterr()
    assert translate(*words, "--quality", quality) == 2
    assert said in capsys.readouterr().err
