"""A loaded model: the same as the command line, and what it refuses."""

import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zeromt
from tests.small import small_runs
from zeromt.cli.main import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> zeromt.LoadedModel:
    """Of a copy, in which `evaluate` keeps translations."""
    return zeromt.load(shutil.copytree(small_runs(), tmp_path_factory.mktemp("kept") / "kept") / "runs" / "small")


LINES = ("Hello.", "", "I am here.", "It rains.")


def test_it_translates_and_scores_as_the_command_does(model: zeromt.LoadedModel, tmp_path: Path) -> None:
    def command(text: str, *options: str) -> list[str]:
        (tmp_path / "in").write_text(text)
        files = ("-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"))
        assert main(["translate", str(small_runs() / "runs" / "small"), *options, *files]) == 0
        return (tmp_path / "out").read_text().splitlines()

    translated = model.translate(iter(LINES), beam=np.int64(3), length_penalty=np.float32(0.5))
    assert translated == command("".join(f"{line}\n" for line in LINES), "--beam", "3", "--length-penalty", "0.5")
    assert model.translate([]) == []
    assert model.translate(LINES, sampler="truncated", seed=3) == model.translate(LINES, sampler="truncated", seed=3)
    texts = [one.text for one in model.n_best(["I am here."], 4)[0]]
    scored = [f"{one.log_prob:.4f}\t{one.score:.4f}" for one in model.score(["I am here."] * 4, texts)]
    assert scored == command("".join(f"I am here.\t{text}\n" for text in texts), "--score")


def test_it_is_shown_in_a_line(model: zeromt.LoadedModel) -> None:
    shown = repr(model)
    assert "\n" not in shown
    assert len(shown) < 150
    assert f"{model.config.name} at update {model.checkpoint.manifest['step']}, en to fr, " in shown
    assert shown.endswith(" parameters, fp32 on cpu>")


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda model: model.translate("Hello."), "lines: "),
    (lambda model: model.translate(["a", 3]), "lines[1]: "),
    (lambda model: model.score(["a", "b"], ["c"]), "targets: 1 "),
    (lambda model: model.evaluate(["a"], "b"), "references: a str"),
    (lambda model: model.evaluate(["a"], [["b"], ["c", "d"]]), "references: 2 "),
    (lambda model: model.evaluate(["a"], ["b"], metrics="bleu"), "metrics: "),
    (lambda _: zeromt.load(small_runs() / "runs"), f"RUN: {str(small_runs() / 'runs')!r} is neither"),
    (lambda _: zeromt.load(small_runs() / "runs" / "small", plugins="mine.py"), "plugins: "),
    (lambda _: zeromt.load(small_runs() / "runs" / "small", precision="fp8"), "--precision: 'fp8'"),
    (lambda model: model.translate(["a"], beam="5"), "beam: '5'"),
    (lambda model: model.translate(["a"], beem=5), "beem: "),
    (lambda model: model.translate(["a"], min_length_ratio=9.0), "min_length_ratio: 9.0"),
]
"""Calls, and what must be named: a string is no list, and so on."""


@pytest.mark.parametrize(("call", "named"), WRONG, ids=[named for _, named in WRONG])
def test_what_is_wrong_is_named(call: Callable[[Any], object], named: str, model: zeromt.LoadedModel) -> None:
    with pytest.raises((TypeError, zeromt.UserError), match=f"^{re.escape(named)}"):
        call(model)


LONG = "the cat sleeps here " * 100


def test_lines_that_are_cut_are_warned_of_once_a_call_at_the_callers_line(model: zeromt.LoadedModel) -> None:
    """With the number of the first, by every method; `evaluate` counts them, as the command does."""
    said = r"^2 lines are longer than model.max_positions=128 pieces and lose their end$"
    lines = ["a b", LONG, "c", LONG]
    calls: list[Callable[[], object]] = [
        lambda: model.translate(lines),
        lambda: model.n_best(lines, 1),
        lambda: model.score(lines, ["a"] * 4),
        lambda: model.evaluate(lines, ["a"] * 4),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match=said) as caught:
            result = call()
        assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert isinstance(result, dict)
    assert result["truncated"] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.translate(["a b"])
