"""A loaded model: the same as the command line, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

import zeromt
from tests.kept import BBB3253


@pytest.fixture(scope="module")
def model() -> zeromt.LoadedModel:
    return zeromt.load(BBB3253 / "runs" / "small")


LINES = ("Hello.", "", "I am here.", "It rains.")


def test_it_translates_as_the_command_does(
    model: zeromt.LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from launcher.cli import main

    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in LINES))
    arguments = ["--beam", "3", "--length-penalty", "0.5", "-i", str(tmp_path / "in.en"), "-o", str(tmp_path / "out")]
    assert main(["translate", str(BBB3253 / "runs" / "small"), *arguments]) == 0, capsys.readouterr().err
    translated = model.translate(iter(LINES), beam=3, length_penalty=0.5)
    assert translated == (tmp_path / "out").read_text().splitlines()
    assert model.translate([]) == []
    assert model.translate(LINES, sampler="truncated", seed=3) == model.translate(LINES, sampler="truncated", seed=3)


def test_it_scores_as_the_command_does(
    model: zeromt.LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from launcher.cli import main

    texts = [one.text for one in model.n_best(["I am here."], 4)[0]]
    (tmp_path / "in.tsv").write_text("".join(f"I am here.\t{text}\n" for text in texts))
    arguments = ["--score", "-i", str(tmp_path / "in.tsv"), "-o", str(tmp_path / "out")]
    assert main(["translate", str(BBB3253 / "runs" / "small"), *arguments]) == 0, capsys.readouterr().err
    scored = model.score(["I am here."] * 4, texts)
    assert [f"{one.log_prob:.4f}\t{one.score:.4f}" for one in scored] == (tmp_path / "out").read_text().splitlines()
    with pytest.raises(zeromt.UserError, match="targets: 1 for 2 sources"):
        model.score(["a", "b"], ["c"])


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"beam": 0}, "beam: 0"),
        ({"beam": "5"}, "beam: '5'"),
        ({"beem": 5}, "beem: .*beam"),
        ({"min_length_ratio": 9.0}, "min_length_ratio: 9.0 is more than max_length_ratio"),
    ],
)
def test_a_wrong_search_is_named(model: zeromt.LoadedModel, search: dict[str, Any], said: str) -> None:
    with pytest.raises(zeromt.UserError, match=said):
        model.translate(["a"], **search)


def test_a_string_is_no_list(model: zeromt.LoadedModel) -> None:
    with pytest.raises(TypeError, match=r"lines: a str; give a list of str: \['Hello"):
        model.translate("Hello.")
    with pytest.raises(TypeError, match=r"lines\[1\]: a int; give str"):
        model.translate(["a", 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="references: a str"):
        model.evaluate(["a"], "b")
    with pytest.raises(TypeError, match="metrics: a str"):
        model.evaluate(["a"], ["b"], metrics="bleu")
    with pytest.raises(TypeError, match="plugins: a str"):
        zeromt.load(BBB3253 / "runs" / "small", plugins="mine.py")
    with pytest.raises(zeromt.UserError, match="references: 2 for 1 sources"):
        model.evaluate(["a"], [["b"], ["c", "d"]])
