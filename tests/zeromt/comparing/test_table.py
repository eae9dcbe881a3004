"""What the table has beside scores: fields that differ, cost, and what is said of sets."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from configs import HeldOutSection, UserError
from tests.conftest import Call, Refused, bundled
from tests.small import small_runs
from trainer.inference.loading import find_checkpoint
from zeromt.comparing.command import differing
from zeromt.comparing.sets import shared_sets, subjects_of, untagged
from zeromt.translator.engine import Engine
from zeromt.translator.worker import Options

SMALL = small_runs() / "runs"


@pytest.fixture
def option(tmp_path: Path) -> str:
    """A set of ten sentences, for `--set`."""
    for language in ("en", "fr"):
        (tmp_path / f"x.{language}").write_bytes(bundled(language, slice(10)))
    return f"{{name: x, source: {tmp_path}/x.en, references: [{tmp_path}/x.fr]}}"


def test_one_table(call: Call, option: str, tmp_path: Path) -> None:
    shutil.copytree(SMALL / "small", tmp_path / "sm\nall")
    runs = (str(SMALL / "small"), str(SMALL / "mixture"), "sm\nall")
    done = call("compare", *runs, "--set", option, "--bootstrap", "20", "--randomisation", "20", cwd=tmp_path)
    assert done.code == 0, done.err
    table, _, notes = done.out.partition("\n\n")
    rows = [re.split("  +", line) for line in table.splitlines()]
    assert rows[0] == ["", "small", "mixture", "sm\\nall"]
    assert {len(row) for row in rows if row[0]} == {4}
    heads = [row[0] for row in rows]
    for head in ("checkpoint", "x BLEU", "x chrF", "training.max_updates", "state", "goodput"):
        assert head in heads
    assert "name" not in heads
    assert next(row for row in rows if row[1] == "p")[2] == "-"
    assert "x: validation, en-fr, 10 sentences" in notes
    assert "x BLEU: nrefs:1|" in notes
    assert re.search(r"^x BLEU +[\d.]+ ± [\d.]+ ", table, re.MULTILINE)
    assert next(row for row in rows if row[0] == "updates")[1] == "10"


def test_fields_that_differ() -> None:
    one = {"seed": 1, "list": [{"a": 1}, {"b": [1, 2]}], "none": None}
    two = {"seed": 1, "list": [{"a": 2}], "none": None, "more": {"x": True}}
    assert differing([one, two]) == {"list.0.a": ["1", "2"], "list.1.b": ["[1, 2]", "-"], "more.x": ["-", "True"]}
    assert differing([one, one]) == {}


def test_sets_that_not_all_have_are_named(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small_runs())
    paths = [str(SMALL / name) for name in ("small", "mixture")]
    engines = [Engine(Options(run=path), [find_checkpoint(Path(path))]) for path in paths]
    more = HeldOutSection(name="more", source=f"{tmp_path}/x.en", references=[f"{tmp_path}/x.fr"])
    evaluation = dataclasses.replace(engines[1].config.evaluation, sets=[more])
    engines[1].config = dataclasses.replace(engines[1].config, evaluation=evaluation)
    subjects = subjects_of(paths, engines)
    assert shared_sets(subjects, []) == ([], ["dataset", "more"])
    [[asked, _]], _ = shared_sets(subjects, ["more"])
    assert asked.sources == (tmp_path / "x.en").read_text(encoding="utf-8").splitlines()
    with pytest.raises(UserError, match=r"--set: .*mroe.*more"):
        shared_sets(subjects, ["mroe"])


def test_tags_are_no_text() -> None:
    given = (">>fra<< a", ">>fra<<a", "a >>fra<< b", ">> a", "")
    assert [untagged(line) for line in given] == ["a", "a", "a >>fra<< b", ">> a", ""]


def test_a_run_beside_itself_is_refused(refused: Refused) -> None:
    newest = max((SMALL / "small" / "checkpoints").glob("step-*"))
    assert "name one checkpoint twice" in refused("compare", str(SMALL / "small"), str(newest))
