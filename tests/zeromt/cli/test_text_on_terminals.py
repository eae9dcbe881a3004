"""What text of a run, a corpus or a model could do to a terminal: nothing. Files and pipes get it as it is."""

import json
import re
from pathlib import Path

import pytest

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from tests.conftest import Call
from tests.forked import Forked
from tests.launcher.conftest import environment
from tests.trainer.on_a_terminal import CODES, on_a_terminal
from tests.zeromt.made import make_run

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\u202e\u2066\u200f\x7f"
"""Renames a window, empties the screen, colours, goes back, reverses the rest of a line."""
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
OWN = re.compile(r"\r\x1b\[K|" + CODES.pattern)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose log, scores, names and pieces have escape sequences."""
    folder = tmp_path_factory.mktemp("texts")
    lines = ["\x1b\x9b\u202e\x1b\u2066 \x1b\u202e", "\x9b\u202e \x1b\x1b", "\u202e\x9b \u2066\x1b"] * 40
    section = TokenizerSection(threads=1, normalization="identity", vocab_size=16)
    make_run(folder / "run", train_tokenizer(section, lines, lines))
    (folder / "text").write_text("w1 w2\nw3\n")
    rank = folder / "run" / "logs" / "launch" / "attempt_0" / "0"
    rank.mkdir(parents=True)
    (rank / "stderr.log").write_text(f"a line {EVIL} of a log\n")
    (rank / "stdout.log").write_text(f"a line {EVIL} of a log\n")
    status = {
        "run": EVIL,
        "state": "failed",
        "step": 1,
        "error": f"rank 0 {EVIL}",
        "updated": 1.0,
        "pid": 1,
        "host": EVIL,
    }
    (folder / "run" / "status.json").write_text(json.dumps(status))
    return folder


COMMANDS = {
    "log": ["log", "run"],
    "status": ["status", "run"],
    "status --json": ["status", "run", "--json"],
    "inspect": ["inspect", "run"],
    "translate": ["translate", "run", "-i", "text", "--n-best", "4", "--beam", "4"],
    "an error": ["status", f"not {EVIL}"],
    "a usage error": ["status", "run", f"--not-{EVIL}"],
}
RAW = ("log", "translate")
"""Commands whose output in a file is text of others as it is."""


@pytest.mark.parametrize("command", COMMANDS)
def test_text_does_nothing_to_a_terminal(command: str, folder: Path, forked: Forked, call: Call) -> None:
    variables = environment(TERM="xterm")
    words = ("zeromt.cli.main", COMMANDS[command], 200, variables)
    [(_, shown)] = forked.ranks(1, on_a_terminal, *words, cwd=folder, meet=False, variables=variables)
    shown = OWN.sub("", shown)
    assert shown.strip()
    assert not BAD.findall(shown)
    if command not in RAW:
        return
    raw = call(*COMMANDS[command], cwd=folder).out
    assert BAD.search(raw), raw
    if command == "log":
        assert f"a line {EVIL} of a log" in raw
        assert r"a line \x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e\u2066\u200f\x7f of a log" in shown
