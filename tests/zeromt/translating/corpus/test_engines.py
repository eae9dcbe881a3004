"""Engines other than the run: a program that answers as it likes, and an export."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Refused
from tests.small import FILES
from tests.zeromt.translating.corpus.conftest import Translate
from tests.zeromt.translating.corpus.test_parts import SEARCH, made, side

PROGRAM = """
import json, random, sys, threading

draws, waiting, failed = random.Random(int(sys.argv[1])), [], set()


def answer():
    draws.shuffle(waiting)
    while len(waiting) > 3:
        tell(waiting.pop())


def tell(line):
    number, source = line["id"], line["source"]
    if number == NEVER:
        return
    if number % 50 == 0 and number not in failed:
        failed.add(number)
        print(json.dumps({"id": number, "error": "busy"}), flush=True)
        return
    text = " ".join([*line["context"], source.upper()])
    print(json.dumps({"id": number, "candidates": [{"text": text, "score": -1.5}, "second"]}), flush=True)


NEVER = int(sys.argv[2])
threading.Timer
for text in sys.stdin:
    waiting.append(json.loads(text))
    answer() if len(waiting) > 8 or draws.random() < 0.2 else None
    if len(waiting) <= 8 and draws.random() < 0.3:
        answer()
    while waiting:
        tell(waiting.pop(draws.randrange(len(waiting))))
"""


def engine(tmp_path: Path, never: int = 0, **fields: Any) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    tree = {"kind": "command", "command": [sys.executable, "program.py", "1", str(never)], "in_flight": 8, **fields}
    (tmp_path / "engine.yaml").write_text(json.dumps(tree))
    return "engine.yaml"


def test_a_program_that_answers_out_of_order_fails_and_forgets(translate: Translate, tmp_path: Path) -> None:
    lines = [f"line {number}" if number % 70 else "" for number in range(1, 401)]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    name = engine(tmp_path, never=123, seconds=1.0, retries=2)
    words = ("--engine", name, "-i", "in", "-o", "out", "--chunk-lines", "32", "--candidates", "2")
    for number in (3, 1, 2):
        assert translate(*words, "--part", f"{number}/3") == 0
    assert translate(*words, "--merge") == 0
    texts = Path("out/translations.txt").read_text().split("\n")[:-1]
    assert texts == [line.upper() if number != 123 else "" for number, line in enumerate(lines, 1)]
    holes = [line for line in side() if "hole" in line]
    assert [(line["line"], line["hole"]) for line in holes] == [(123, "never answered")]
    assert translate(*words, "--merge", "--choose", "all") == 0
    assert Path("out/translations.txt").read_text().count("second\n") == 400 - 5 - 1


def test_context_and_prompt(
    translate: Translate, tmp_path: Path, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("a\n\nb\nc\nd\n")
    (tmp_path / "prompt").write_text("Translate: {}")
    words = ("--engine", engine(tmp_path, context=2, prompt="prompt"), "-i", "in", "-o", "out", "--chunk-lines", "4")
    assert translate(*words, "--part", "1/1") == 0
    assert translate(*words, "--merge") == 0
    assert Path("out/translations.txt").read_text() == "A\n\na B\na b C\nD\n"
    assert side()[0]["engine"]["prompt"] == "Translate: {}"
    (tmp_path / "prompt").write_text("Translate it: {}")
    capsys.readouterr()
    assert "engine.prompt: \"Translate it: {}\", and 'out' was begun with" in refused("translate", *words, "--merge")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": ["no-such-program"]}, "engine.command: 'no-such-program' cannot be started: No such file"),
        ({"command": ["true"]}, "engine.command: 'true' ended with exit code 0 while lines were waited for"),
        ({"command": ["echo", "hello"]}, "engine.command: 'echo' answered 'hello'; allowed is a JSON object with an"),
        ({"in_flight": 0}, "engine.in_flight: 0; allowed is greater than 0"),
        ({"prompt": "nowhere"}, "engine.prompt: 'nowhere': no such file"),
    ],
)
def test_programs_that_do_not_work(fields: dict[str, Any], said: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    name = engine(tmp_path, **fields)
    assert said in refused("translate", "--engine", name, "-i", "in", "-o", "out", "--part", "1/1")


def test_an_export(
    translate: Translate, run: str, lines: list[str], refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    text = {side: str(FILES / "corpus" / f"v.{code}") for side, code in (("source", "en"), ("reference", "fr"))}
    search = {"max_length_ratio": 1.0, "max_length_extra": 2}
    for name in ("float32", "int8"):
        tree = {"kind": "ctranslate2", "run": run, "quantization": name, "search": search, **text}
        Path(f"{name}.yaml").write_text(json.dumps(tree))
    ours = made(translate, run, "run", 1)[0]
    theirs = {parts: _by_export(translate, parts, "float32") for parts in (1, 3)}
    assert theirs[1] == theirs[3] == ours
    capsys.readouterr()
    quantised = _by_export(translate, 2, "int8")
    assert quantised.count(b"\n") == len(lines)
    assert " in int8 (" in capsys.readouterr().out
    words = ("translate", "--engine", "sampled.yaml", "-i", "in.en", "-o", "other", "--part", "1/1")
    Path("sampled.yaml").write_text(json.dumps({"kind": "ctranslate2", "run": run, "search": {"sampler": "truncated"}}))
    assert "engine.search.sampler: with ctranslate2, which seeds no line's samples" in refused(*words)


def _by_export(translate: Translate, parts: int, quantization: str) -> bytes:
    out = f"{quantization}-{parts}"
    words = ("--engine", f"{quantization}.yaml", "-i", "in.en", "-o", out, *SEARCH[4:])
    for number in range(parts, 0, -1):
        assert translate(*words, "--part", f"{number}/{parts}") == 0
    assert translate(*words, "--merge") == 0
    return Path(out, "translations.txt").read_bytes()
