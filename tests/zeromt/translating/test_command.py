"""One line out for every line in, in order, whatever the line holds."""

import functools
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import Call, Refused, Start, descendants, zeromt
from tests.trainer.conftest import TrainedRun
from tests.waiting import wait_until


@pytest.fixture
def translate(trained: TrainedRun, call: Call) -> Call:
    return functools.partial(call, "translate", str(trained.folder))


def test_sentences_as_arguments_are_translated_as_it_has_learnt_by_heart(trained: TrainedRun, translate: Call) -> None:
    done = translate(*trained.source.read_text().splitlines()[:9], "--beam", "3")
    assert done.code == 0, done.err
    pairs = zip(done.out.splitlines(), trained.reference.read_text().splitlines(), strict=False)
    assert sum(ours == theirs for ours, theirs in pairs) > 5


def test_strange_lines_give_one_line_each_in_order(trained: TrainedRun, translate: Call) -> None:
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
    done = translate(stdin="\n".join(lines) + "\n")
    assert done.code == 0, done.err
    assert done.out.endswith("\n")
    out = done.out.split("\n")[:-1]
    assert len(out) == len(lines)
    assert out[0] == out[2] == out[4] == ""
    alone = translate(stdin="\n".join(known) + "\n")
    assert out[1::2] == alone.out.splitlines() * 4
    assert "lose their end" in done.err


def test_n_best_is_numbered_scored_and_ordered(trained: TrainedRun, translate: Call, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(trained.source.read_text().splitlines(keepends=True)[:4]))
    assert translate("-i", "in", "-o", "out", "--beam", "4", "--n-best", "3").code == 0
    rows = [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]
    assert [row[0] for row in rows] == [str(i) for i in range(4) for _ in range(3)]
    for i in range(4):
        scores = [float(row[1]) for row in rows if row[0] == str(i)]
        assert scores == sorted(scores, reverse=True)


def test_two_processes_and_an_ensemble(trained: TrainedRun, translate: Call, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in ["", *trained.source.read_text().splitlines()[:5]]))
    words = ("-i", "in", "--ensemble", str(trained.folder / "checkpoints" / "step-00000150"))
    done = translate(*words, "-o", "out", "--processes", "2")
    assert done.code == 0, done.err
    assert (tmp_path / "out").read_text() == translate(*words).out


def test_ctrl_c_ends_all_processes(trained: TrainedRun, start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    command = start(*zeromt("translate", str(trained.folder), "-i", "in", "-o", "out", "--processes", "2"))
    with (tmp_path / "in").open("w") as inlet:
        for _ in range(40):
            inlet.write(trained.source.read_text())
        inlet.flush()
        wait_until(lambda: len(descendants(command.process.pid)) == 3)  # with Python's tracker of resources
        children = descendants(command.process.pid)
        command.process.send_signal(signal.SIGINT)
        done = command.finish()
    assert done.code == 130
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "-i", "latin1"], "line 2 is not UTF-8"),
        (["{broken}", "-i", "one"], "model-00001-of-00002.safetensors"),
        (["{run}", "--score", "-i", "one"], "one: line 1 has 0 tabs"),
        (["{run}", "--n-best", "3", "--beam", "2"], "beam"),
        (["{run}", "--sample", "--beam", "2"], "--beam: 2 with a sampler"),
        (["{run}", "a sentence", "-i", "one"], "SENTENCE: 'a sentence' is given with --input; give one of them"),
    ],
)
def test_refuses_what_does_not_fit(
    arguments: list[str], said: str, trained: TrainedRun, tmp_path: Path, refused: Refused
) -> None:
    broken = Path(shutil.copytree(trained.folder / "checkpoints" / "step-00000300", tmp_path / "broken"))
    weights = broken / "model-00001-of-00002.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (tmp_path / "latin1").write_bytes(b"fine\nd\xe9j\xe0 vu\n")
    (tmp_path / "one").write_text("a\n")
    filled = (a.format(run=trained.folder, broken=broken) for a in arguments)
    assert said in refused("translate", *filled, "-o", "out")
