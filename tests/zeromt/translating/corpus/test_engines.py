"""An engine other than the run: its export."""

import json
from pathlib import Path

import pytest

from tests.conftest import Refused
from tests.small import FILES
from tests.zeromt.translating.corpus.conftest import Translate
from tests.zeromt.translating.corpus.test_parts import SEARCH, made


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
