"""What a run says on terminals of 80 and 120 columns, with NO_COLOR, and where its output is no terminal."""

import re
from pathlib import Path

import pytest

from tests.conftest import Corpus
from tests.forked import Forked
from tests.trainer.on_a_terminal import CODES, bars, on_a_terminal, seen
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
    "model", "parameters", "devices", "data", "an update", "an epoch", "schedule", "evaluation",
    "checkpoints", "written to",
]  # fmt: skip


def arguments(corpus: Corpus, folder: Path, *more: str) -> list[str]:
    return ["debug", *corpus.overrides, f"output={folder}", *TRAINING, *more]


def on_terminal(
    forked: Forked, folder: Path, given: list[str], width: int, variables: dict[str, str], log: Path | None = None
) -> tuple[int, str]:
    variables = {"TERM": "xterm", "PYTHONUTF8": "1", **variables}
    name = None if log is None else str(log)
    [outcome] = forked.ranks(1, on_a_terminal, "trainer.main", given, width, variables, name, cwd=folder, meet=False)
    return outcome


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
    assert not {"\x1b", "\r"} & {*plain}
    steps = [match for line in lines if (match := re.fullmatch(STEPS, line))]
    assert [match.groups() for match in steps] == [("10", "33.3"), ("20", "66.7"), ("30", "100.0")]
    assert [line[2:16].strip() for line in lines[: len(ROWS)]] == ROWS
    assert plain.count("nrefs:1|") == 1, "the signature, in the table"
    first, second = (line for line in lines if "  valid loss " in line)
    assert first.startswith("step 15  valid loss ")
    assert first.endswith(" s)  the best so far")
    assert re.search(r"\d s\)  the best(: BLEU [\d.]+ at step 15| so far)$", second)


def test_summary(plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command in it is one that is understood."""
    lines = plain.splitlines()
    at = lines.index("finished (training.max_updates=30 is reached): runs/debug")
    names = [line[2:16].strip() for line in lines[at + 1 :]]
    assert names == ["trained", "best", "weights", "report", "next", ""]
    assert lines[at + 3].endswith("runs/debug/checkpoints/step-00000030")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("")
    (tmp_path / "runs" / "debug").mkdir(parents=True)
    for line in lines[at + 5 :]:
        program, *given = line[16:].split()
        assert program == "zeromt"
        parse(given)


def test_terminal(forked: Forked, corpus_en_fr: Corpus, plain: str, tmp_path: Path) -> None:
    """The same words as in a file, with a bar that goes away."""
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs")), 120, {})
    assert code == 0, text
    assert "\x1b" not in CODES.sub("", text)
    lines = seen(text)
    assert words(" ".join(lines)) == words(plain)
    drawn = bars(text)
    assert max(map(len, drawn)) < 120
    form = r" *(\d+)% \|.+\| .* (\d+) of 30 updates  [\d.]+ s/update  \d\d:\d\d left *"
    parts = [(int(match[1]), int(match[2])) for bar in drawn if (match := re.fullmatch(form, bar))]
    assert parts, drawn
    assert all(percent == round(100 * step / 30) for percent, step in parts), parts
    assert not any("% |" in line for line in lines), "no bar is left"


def test_refusal_is_red(forked: Forked, corpus_en_fr: Corpus, tmp_path: Path) -> None:
    code, text = on_terminal(forked, tmp_path, arguments(corpus_en_fr, Path("runs"), "training.max_updates=0"), 80, {})
    assert code == 2
    assert text.startswith("\r\x1b[K\x1b[1;31mzeromt: error: training.max_updates")
