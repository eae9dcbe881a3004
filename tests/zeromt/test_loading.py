"""A loaded model: the same as the command line, and what it refuses."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zeromt
from tests.small import small_runs


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> zeromt.LoadedModel:
    """Of a copy, in which `evaluate` keeps translations."""
    return zeromt.load(shutil.copytree(small_runs(), tmp_path_factory.mktemp("kept") / "kept") / "runs" / "small")


LINES = ("Hello.", "", "I am here.", "It rains.")


def test_it_translates_as_the_command_does(
    model: zeromt.LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from zeromt.cli.main import main

    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in LINES))
    arguments = ["--beam", "3", "--length-penalty", "0.5", "-i", str(tmp_path / "in.en"), "-o", str(tmp_path / "out")]
    assert main(["translate", str(small_runs() / "runs" / "small"), *arguments]) == 0, capsys.readouterr().err
    translated = model.translate(iter(LINES), beam=3, length_penalty=0.5)
    assert translated == (tmp_path / "out").read_text().splitlines()
    assert model.translate([]) == []
    assert model.translate(LINES, sampler="truncated", seed=3) == model.translate(LINES, sampler="truncated", seed=3)


def test_it_scores_as_the_command_does(
    model: zeromt.LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from zeromt.cli.main import main

    texts = [one.text for one in model.n_best(["I am here."], 4)[0]]
    (tmp_path / "in.tsv").write_text("".join(f"I am here.\t{text}\n" for text in texts))
    arguments = ["--score", "-i", str(tmp_path / "in.tsv"), "-o", str(tmp_path / "out")]
    assert main(["translate", str(small_runs() / "runs" / "small"), *arguments]) == 0, capsys.readouterr().err
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


def test_it_is_shown_in_a_line(model: zeromt.LoadedModel) -> None:
    shown = repr(model)
    assert "\n" not in shown
    assert len(shown) < 150
    assert f"{model.config.name} at update {model.checkpoint.manifest['step']}, en to fr, " in shown
    assert shown.endswith(" parameters, fp32 on cpu>")


def test_a_string_is_no_list(model: zeromt.LoadedModel) -> None:
    with pytest.raises(TypeError, match="lines: a str"):
        model.translate("Hello.")
    with pytest.raises(TypeError, match=r"lines\[1\]: a int"):
        model.translate(["a", 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="references: a str"):
        model.evaluate(["a"], "b")
    with pytest.raises(TypeError, match="metrics: a str"):
        model.evaluate(["a"], ["b"], metrics="bleu")
    with pytest.raises(TypeError, match="plugins: a str"):
        zeromt.load(small_runs() / "runs" / "small", plugins="mine.py")
    with pytest.raises(zeromt.UserError, match="references: 2 for 1 sources"):
        model.evaluate(["a"], [["b"], ["c", "d"]])


LONG = "the cat sleeps here " * 100


def test_lines_that_are_cut_are_warned_of_once_a_call_at_the_callers_line(model: zeromt.LoadedModel) -> None:
    """With the number of the first, by every method; `evaluate` counts them, as the command does."""
    said = r"^2 lines are longer than model.max_positions=128 pieces and lose their end; the first is line 2$"
    lines = ["a b", LONG, "c", LONG]
    calls: list[Callable[[], object]] = [
        lambda: model.translate(lines),
        lambda: model.n_best(lines, 1),
        lambda: model.score(lines, ["a"] * 4),
        lambda: model.evaluate(lines, ["a"] * 4),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=said) as caught:
            found = call()
        assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert isinstance(found, dict)
    assert found["truncated"] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.translate(["a b"])


def test_numbers_of_numpy_are_numbers(model: zeromt.LoadedModel) -> None:
    two: Any = np.int64(2)
    half = np.float32(0.5)
    assert model.translate(["a b"], beam=two, length_penalty=half) == model.translate(
        ["a b"], beam=2, length_penalty=0.5
    )
    assert model.n_best(["a b"], two) == model.n_best(["a b"], 2)
    assert model.evaluate(["a b"], ["c"], beam=two) == model.evaluate(["a b"], ["c"], beam=2)


def test_what_is_no_precision_and_what_is_no_text_is_named(model: zeromt.LoadedModel) -> None:
    with pytest.raises(zeromt.UserError, match="'fp8'; allowed is auto, fp32, bf16, fp16"):
        zeromt.load(small_runs() / "runs" / "small", precision="fp8")
    odd = ["a", "b \ud800"]
    with pytest.raises(zeromt.UserError, match=r"^lines\[1\]: holds half of a surrogate pair"):
        model.translate(odd)
    with pytest.raises(zeromt.UserError, match=r"^targets\[1\]: holds half of a surrogate pair"):
        model.score(["a", "b"], odd)
    with pytest.raises(zeromt.UserError, match=r"^references\[1\]\[1\]: holds half of a surrogate pair"):
        model.evaluate(["a", "b"], [["a", "b"], odd])
