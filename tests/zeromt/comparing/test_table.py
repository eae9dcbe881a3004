"""What the table has beside scores: fields that differ, cost, and what is said of sets."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from configs import HeldOutSection, UserError
from tests.conftest import Call
from tests.zeromt.comparing.conftest import Planted
from trainer.inference.loading import find_checkpoint
from zeromt.comparing.command import differing, read_cost
from zeromt.comparing.sets import Subject, shared_sets, subjects_of, untagged

FAST = ("--bootstrap", "20", "--randomisation", "20")


def test_one_table(call: Call, planted: Planted) -> None:
    shutil.copytree(planted.root / planted.runs[0], planted.root / "runs" / "sm\nall", dirs_exist_ok=True)
    runs = (*planted.runs, "runs/sm\nall")
    done = call("compare", *runs, "--set", planted.option, *FAST, cwd=planted.root)
    assert done.code == 0, done.err
    table, _, notes = done.out.partition("\n\n")
    rows = [re.split("  +", line) for line in table.splitlines()]
    assert rows[0] == ["", "small", "mixture", "sm\\nall"]
    assert {len(row) for row in rows if row[0]} == {4}
    heads = [row[0] for row in rows]
    for head in ("checkpoint", "planted BLEU", "planted chrF", "training.max_updates", "state", "goodput"):
        assert head in heads
    assert "name" not in heads
    p = next(row for row in rows if row[1] == "p")
    assert p[2] == "-"
    assert "planted: validation, en-fr, 60 sentences" in notes
    assert "planted BLEU: nrefs:1|" in notes
    assert re.search(r"^planted BLEU +[\d.]+ ± [\d.]+ ", table, re.MULTILINE)
    assert re.search(r"^  difference +- +[+-][\d.]+ ", table, re.MULTILINE)
    assert next(row for row in rows if row[0] == "updates")[1] == "10"


def test_a_broken_run_has_what_can_be_read(tmp_path: Path) -> None:
    lines = ('{"kind": "train", "step": 1, "loss": 1.0}', '{"kind": "train", "step": 2, "lo')
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    (tmp_path / "ledger.json").write_text("[]")
    found = read_cost(tmp_path)
    assert (found["updates"], found["goodput"], found["state"]) == (1, None, None)


def test_fields_that_differ() -> None:
    one = {"seed": 1, "list": [{"a": 1}, {"b": [1, 2]}], "none": None}
    two = {"seed": 1, "list": [{"a": 2}], "none": None, "more": {"x": True}}
    assert differing([one, two]) == {"list.0.a": ["1", "2"], "list.1.b": ["[1, 2]", "-"], "more.x": ["-", "True"]}
    assert differing([one, one]) == {}


def subjects(*runs: str) -> list[Subject]:
    return subjects_of(runs, [find_checkpoint(Path(run)) for run in runs])


def test_sets_that_not_all_have_are_named(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(planted.root)
    one, two = subjects(*planted.runs)
    more = HeldOutSection(name="more", source=str(planted.source), references=[str(planted.references[0])])
    evaluation = dataclasses.replace(two.config.evaluation, sets=[more])
    two = dataclasses.replace(two, config=dataclasses.replace(two.config, evaluation=evaluation))
    assert shared_sets([one, two], []) == ([], ["dataset", "more"])
    [[asked, _]], _ = shared_sets([one, two], ["more"])
    assert asked.sources == planted.source.read_text(encoding="utf-8").splitlines()
    with pytest.raises(UserError, match=r"--set: .*mroe.*more"):
        shared_sets([one, two], ["mroe"])


def test_tags_are_no_text() -> None:
    assert [untagged(line) for line in (">>fra<< a", ">>fra<<a", "a >>fra<< b", ">> a", "")] == [
        "a", "a", "a >>fra<< b", ">> a", "",
    ]  # fmt: skip
