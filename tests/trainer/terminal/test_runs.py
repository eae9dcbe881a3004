"""What a run says on terminals of 80 and 120 columns, with NO_COLOR, and where its output is no terminal."""

import logging
import re
from pathlib import Path

import pytest

from configs import load_run
from tests.conftest import Corpus
from tests.forked import Forked
from tests.trainer.terminal.on_a_terminal import CODES, bars, seen, train_on_a_terminal
from trainer.checkpoint.state import TrainerState
from trainer.terminal.tables import show_summary
from zeromt.cli.main import parse

TRAINING = (
    "training.max_updates=30",
    "training.log_every=10",
    "training.tensorboard=false",
    "evaluation.max_pairs=4",
    "evaluation.every_updates=15",
    "checkpoint.every_updates=0",
    "checkpoint.keep_best=0",
)
STEPS = r"step (\d+)  epoch \d+  loss [\d.]+  nll .*  padding [\d.]+%  ([\d.]+)% done  \d\d:\d\d left"
ROWS = [
    "model",
    "vocabulary",
    "data",
    "an update",
    "an epoch",
    "schedule",
    "limits",
    "evaluation",
    "checkpoints",
    "devices",
    "written to",
]


def arguments(corpus: Corpus, folder: Path, *more: str) -> list[str]:
    return ["debug", *corpus.overrides, f"output={folder}", *TRAINING, *more]


def on_terminal(
    forked: Forked, folder: Path, given: list[str], width: int, variables: dict[str, str], log: Path | None = None
) -> tuple[int, str]:
    variables = {"TERM": "xterm", "PYTHONUTF8": "1", **variables}
    name = None if log is None else str(log)
    [found] = forked.ranks(1, train_on_a_terminal, given, width, variables, name, cwd=folder, meet=False)
    return found


def words(text: str) -> list[str]:
    """Without what differs from run to run."""
    return re.sub(r"[\d.,:+-]+|\S*/\S*", "", text).split()


@pytest.fixture(scope="module")
def plain(forked: Forked, corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Standard output where it is a file."""
    done = forked.trainer(1, *arguments(corpus_en_fr, Path("runs")), cwd=tmp_path_factory.mktemp("plain"))
    assert done.code == 0, done.err
    assert done.err == ""
    return done.out


def test_plain_lines(plain: str) -> None:
    lines = plain.splitlines()
    assert "\x1b" not in plain
    assert "\r" not in plain
    steps = [match for line in lines if (match := re.fullmatch(STEPS, line))]
    assert [match.groups() for match in steps] == [("10", "33.3"), ("20", "66.7"), ("30", "100.0")]
    table = lines[1 : 1 + len(ROWS)]
    assert [line[2:16].strip() for line in table] == ROWS
    assert "runs/debug: metrics.jsonl (figures), checkpoints/, eval/ (translations), logs/" in table[-1]
    first, second = (line for line in lines if "  valid loss " in line)
    assert first.startswith("step 15  valid loss ")
    assert first.endswith(" s)  the best BLEU so far")
    assert re.search(
        r"\d s\)  (the best BLEU so far, \+\d+\.\d\d to step 15|BLEU [+-]\d+\.\d\d to the best, \d+\.\d\d of step 15)$",
        second,
    )


def test_summary(plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command in it is one that is understood."""
    lines = plain.splitlines()
    at = lines.index("finished (training.max_updates=30 is reached): runs/debug")
    names = [line[2:16].strip() for line in lines[at + 1 :]]
    assert names == ["trained", "best", "weights", "figures", "report", "next", "", ""]
    assert lines[at + 3].endswith("runs/debug/checkpoints/step-00000030")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("")
    (tmp_path / "runs" / "debug").mkdir(parents=True)
    for line in lines[at + 6 :]:
        program, *given = line[16:].split()
        assert program == "zeromt"
        parse(given)


def test_summary_of_what_the_clock_ended(caplog: pytest.LogCaptureFixture) -> None:
    """It says how many minutes the rest takes, a tenth more."""
    config = load_run("debug", ["training.max_updates=1100", "training.max_minutes=8"])
    state = TrainerState(step=162, seconds=480.1)
    with caplog.at_level(logging.INFO):
        show_summary(config, state, None, is_finished=True)
    said = "training.max_minutes=8 ended it; the same command with training.max_minutes=60 goes on"
    assert f"  short of      1,100 updates, as {said}" in caplog.messages
    caplog.clear()
    show_summary(config, TrainerState(step=1100, seconds=480.1), None, is_finished=True)
    assert "short of" not in caplog.text


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_terminal(width: int, forked: Forked, corpus_en_fr: Corpus, plain: str, tmp_path: Path) -> None:
    """The same words as in a file, in lines that fit, with a bar that goes away."""
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs")), width, {})
    assert code == 0, text
    assert "\x1b" not in CODES.sub("", text)
    lines = seen(text)
    assert max(map(len, lines)) <= width
    assert words(" ".join(lines)) == words(plain)
    assert "\x1b[1mstep 10\x1b[0m  epoch" in text
    drawn = bars(text)
    assert drawn, "a bar is drawn beside every line at least"
    assert max(map(len, drawn)) < width
    assert any(re.fullmatch(r"training +33% \|.+\| step 10 of 30, [\d.]+ s/update, \d\d:\d\d left", b) for b in drawn)
    assert not any("|" in line and "s/update" in line for line in lines), "no bar is left"


def test_no_color(forked: Forked, corpus_en_fr: Corpus, plain: str, tmp_path: Path) -> None:
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs")), 80, {"NO_COLOR": "1"})
    assert code == 0, text
    assert "\x1b" not in text
    assert [words(line) for line in text.splitlines()] == [words(line) for line in plain.splitlines()]


def test_log_file_beside_a_terminal(forked: Forked, corpus_en_fr: Corpus, plain: str, tmp_path: Path) -> None:
    """The bar is on the terminal, and lines are in the file, without codes."""
    log = tmp_path / "log"
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs")), 80, {}, log)
    assert code == 0, text
    assert [words(line) for line in log.read_text().splitlines()] == [words(line) for line in plain.splitlines()]
    assert seen(text) == [""], "the bar is taken away"
    assert bars(text)


def test_refusal_is_red(forked: Forked, corpus_en_fr: Corpus, tmp_path: Path) -> None:
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs"), "training.max_updates=0"), 80, {})
    assert code == 2
    assert text.startswith("\r\x1b[K\x1b[1;31mzeromt: error: ")
    [line, end] = seen(text)
    assert "training.max_updates" in line
    assert end == ""
