"""What a terminal and Markdown show; text of others is text."""

import dataclasses
import itertools
import json
import re

import pytest

from configs import HeldOutSection, UserError
from tests.conftest import read_metrics
from tests.zeromt.comparing.conftest import HOSTILE, Planted, Zeromt
from zeromt.comparing.sets import shared_sets
from zeromt.comparing.subjects import load_subjects

FAST = ("--bootstrap", "20", "--randomisation", "20")
ALL = (*FAST, "--sentences", "70")


def test_terminal(zeromt: Zeromt, planted: Planted) -> None:
    given = ("--set", planted.option, "--sentences", "70", *FAST)
    done = zeromt("compare", *planted.runs, *given, cwd=planted.root)
    assert done.code == 0, done.err
    for part in ("RUNS", "SCORES", "BY LENGTH AND FREQUENCY", "CURVES", "COST", "CONFIGURATION AND DATA"):
        assert part in done.out.splitlines()
    assert "the training data" in done.out
    assert max(map(len, done.out.splitlines())) < 1000
    assert "training.max_updates" in done.out
    assert "goodput" in done.out
    [evaluation] = read_metrics(planted.root / "runs/mixture", "evaluation")
    row = rf"^  chrF +mixture +{evaluation['chrf']:.2f} "
    assert re.search(row, done.out.partition("Last and best")[2], re.MULTILINE), "of equal sets"


def test_markdown_is_text(zeromt: Zeromt, planted: Planted) -> None:
    done = zeromt("compare", *planted.runs, "--markdown", *ALL, "--set", planted.option, cwd=planted.root)
    assert done.code == 0, done.err
    assert "<img" not in done.out
    assert "<script" not in done.out
    lines = done.out.splitlines()
    for above, line in itertools.pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert cells_of(line) == cells_of(above), line[:200]
    assert any("\\| a \\| b \\|" in line for line in lines), HOSTILE[1]


def cells_of(row: str) -> int:
    return row.replace("\\|", "").count("|")


def test_json_holds_the_text_as_it_is(zeromt: Zeromt, planted: Planted) -> None:
    done = zeromt("compare", *planted.runs, "--json", *ALL, "--set", planted.option, cwd=planted.root)
    sentences = json.loads(done.out)["sets"][0]["sentences"]
    sources = {sentence["source"] for sentence in sentences}
    differing = {source for source, one, two in zip(HOSTILE, *planted.translations, strict=False) if one != two}
    assert differing
    assert differing <= sources
    for sentence in sentences:
        texts = ["".join(text for text, _ in run["pieces"]) for run in sentence["runs"]]
        assert texts == [lines[sentence["number"] - 1] for lines in planted.translations]


def test_sets_that_not_all_have_are_named(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(planted.root)
    one, two = load_subjects(planted.runs)
    more = HeldOutSection(name="more", source=str(planted.source), references=[str(planted.references[0])])
    evaluation = dataclasses.replace(two.config.evaluation, sets=[more])
    two = dataclasses.replace(two, config=dataclasses.replace(two.config, evaluation=evaluation))
    found, notes, _ = shared_sets([one, two], [])
    assert found == [], "two has its own in place of the data's"
    assert [note.partition(",")[0] for note in notes] == ["small: dataset not compared", "mixture: more not compared"]
    [asked], _, _ = shared_sets([one, two], ["more"])
    assert asked.sources == list(planted.source.read_text(encoding="utf-8").splitlines())
    with pytest.raises(UserError, match=r"--set: .*mroe.*more"):
        shared_sets([one, two], ["mroe"])


def test_a_run_without_a_checkpoint_has_a_report(zeromt: Zeromt, planted: Planted) -> None:
    folder = planted.root / "runs" / "begun"
    folder.mkdir()
    for name in ("config.yaml", "metrics.jsonl", "status.json"):
        (folder / name).write_bytes((planted.root / "runs" / "small" / name).read_bytes())
    (folder / "status.json").write_text(json.dumps({"state": "failed", "error": "the disk is full", "step": 3}))
    done = zeromt("compare", "runs/begun", cwd=planted.root)
    assert done.code == 0, done.err
    assert "the disk is full" in done.out
    assert "not scored" in done.out
