"""One line out for every line in, in order, whatever the line holds."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import Start, zeromt
from tests.trainer.conftest import TrainedRun


def test_translates_what_it_learnt_by_heart(trained: TrainedRun, start: Start) -> None:
    source, reference = trained.source.read_text(), trained.reference.read_text()
    done = start(*zeromt("translate", str(trained.folder), "--beam", "3"), stdin=source).finish()
    assert done.code == 0, done.err
    pairs = list(zip(done.out.splitlines(), reference.splitlines(), strict=True))
    assert sum(ours == theirs for ours, theirs in pairs) > 60


def test_strange_lines_give_one_line_each_in_order(trained: TrainedRun, start: Start) -> None:
    known = trained.source.read_text().splitlines()[:3]
    strange = [
        "",
        " ",
        "\t",
        "😀 emoji \U0001f468‍\U0001f469‍\U0001f467",
        "\x01control\x7f\x1b[0m",
        "a\u2028b\u2029c\x0bd\x85e",
    ]
    strange += ["word " * 3000, "日本語", "�", "\ufeffBOM", "x" * 5000, "carriage\r"]
    lines = [line for pair in zip(strange, known * 4, strict=True) for line in pair]
    done = start(*zeromt("translate", str(trained.folder)), stdin="\n".join(lines) + "\n").finish()
    assert done.code == 0, done.err
    assert done.out.endswith("\n")
    out = done.out.split("\n")[:-1]
    assert len(out) == len(lines)
    assert out[0] == out[2] == out[4] == ""
    alone = start(*zeromt("translate", str(trained.folder)), stdin="\n".join(known) + "\n").finish()
    assert out[1::2] == alone.out.splitlines() * 4
    assert "lost their end" in done.err


def test_n_best_is_numbered_scored_and_ordered(trained: TrainedRun, start: Start, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(trained.source.read_text().splitlines(keepends=True)[:4]))
    command = zeromt("translate", str(trained.folder), "-i", "in", "-o", "out", "--beam", "4", "--n-best", "3")
    assert start(*command).finish().code == 0
    rows = [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]
    assert [row[0] for row in rows] == [str(i) for i in range(4) for _ in range(3)]
    for i in range(4):
        scores = [float(row[1]) for row in rows if row[0] == str(i)]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["{run}", "--n-best", "3", "--beam", "2"], "beam"),
        (["{run}", "--beam", "0"], "beam"),
        (["{run}", "-i", "missing"], "missing"),
        (["{run}", "-i", "latin1"], "line 2 is not UTF-8"),
        (["{broken}"], "model-00001-of-00002.safetensors"),
    ],
)
def test_refuses_in_one_line(
    arguments: list[str], said: str, trained: TrainedRun, start: Start, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(trained.folder / "checkpoints" / "step-00000300", tmp_path / "broken"))
    weights = broken / "model-00001-of-00002.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (tmp_path / "latin1").write_bytes(b"fine\nd\xe9j\xe0 vu\n")
    filled = [a.format(run=trained.folder, broken=broken) for a in arguments]
    done = start(*zeromt("translate", *filled), stdin="").finish()
    assert done.code == 2
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("zeromt: error: ")
    assert said in done.err
