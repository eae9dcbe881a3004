"""Scores for a person and for programs."""

import json
import sys

import pytest

from configs.components import make
from zeromt.evaluating.command import show

SETS = {
    name: {
        "bleu": bleu, "bleu_signature": "nrefs:1|tok:13a", "chrf": 53.7, "chrf_signature": "x", "pairs": 1000,
        "sentences_per_second": 140.25,
    }
    for name, bleu in (("valid", 34.031), ("te\nst", None))
}  # fmt: skip


@pytest.mark.parametrize(("is_terminal", "as_json"), [(True, False), (True, True), (False, False)])
def test_a_line_a_set_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool, as_json: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show({"sets": SETS, "beam": 4}, SETS, [make("metric", "bleu"), make("metric", "chrf")], as_json=as_json)
    printed = capsys.readouterr().out
    if is_terminal and not as_json:
        assert printed.splitlines() == [
            "valid  BLEU 34.03  chrF 53.70  1,000 pairs, 140.2 a second  (nrefs:1|tok:13a)",
            "te\\nst  BLEU -  chrF 53.70  1,000 pairs, 140.2 a second  (nrefs:1|tok:13a)",
        ]
    else:
        assert json.loads(printed) == {"sets": SETS, "beam": 4}
