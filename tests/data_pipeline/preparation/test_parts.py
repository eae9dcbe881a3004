"""Parts that are damaged, made with other versions or other settings: refused by name, before anything is merged."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs import PrepareSection, TokenizerSection, UserError
from data_pipeline.preparation import parts, prepare, survey
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.writing import assembly
from data_pipeline.preparation.writing.spill import SpillFolder
from tests.conftest import contents

_GIVEN: list[dict[str, Any]] = [{"merge": True}, {"part": Part(2, 3)}, {}]
"""Arguments of a merge, of a part and of a preparation without parts."""


@pytest.fixture
def wanted(in_spans: PrepareSection, tmp_path: Path) -> dict[str, bytes]:
    """What a preparation without parts writes."""
    prepare.run(dataclasses.replace(in_spans, output=str(tmp_path / "whole")))
    return contents(tmp_path / "whole")


def _prepare_parts(section: PrepareSection, of: int = 3) -> None:
    for number in range(1, of + 1):
        prepare.run(section, part=Part(number, of))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("00000004.pairs", _flip, "is not as it was written"),
        ("00000004.pairs", Path.unlink, "is missing"),
        ("00000004.npz", _cut, "is damaged"),
    ],
)
def test_a_damaged_part_is_refused_by_name_and_the_others_stay(
    in_spans: PrepareSection,
    wanted: dict[str, bytes],
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    said: str,
) -> None:
    _prepare_parts(in_spans)
    [spill] = (tmp_path / ".out.preparing").glob("*/spill")
    before = contents(spill)
    damage(spill / name)
    with pytest.raises(UserError, match=rf"1 of 12 encoded spans .*{name}: {said}\); run --part 2/3 again, then --mer"):
        prepare.run(in_spans, merge=True)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"1 of 12 spans of the corpus are not encoded yet \(the first is number 4\)"):
        prepare.run(in_spans, merge=True)
    prepare.run(in_spans, part=Part(2, 3))
    assert {file: content for file, content in contents(spill).items() if file in before} == before
    prepare.run(in_spans, merge=True)
    assert contents(tmp_path / "out") == wanted


def _stopped(section: PrepareSection, monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
    """A preparation that is killed at a function."""

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, name, kill)
        with pytest.raises(KeyboardInterrupt):
            prepare.run(section)


def test_what_was_damaged_between_a_kill_and_the_next_attempt_is_made_again(
    in_spans: PrepareSection, wanted: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(in_spans, monkeypatch, SpillFolder, "collect_segments")
    [folder] = (path for path in (tmp_path / ".out.preparing").iterdir() if path.is_dir())
    _flip(folder / "spill" / "00000003.pairs")
    _cut(folder / "spill" / "00000007.pairs")
    with pytest.raises(UserError, match="2 of 12 encoded spans "):
        prepare.run(in_spans)
    _stopped(in_spans, monkeypatch, assembly, "write_index")
    _flip(folder / "dataset" / "train-000001.tar")
    _flip(folder / "tables" / "000002.npz")
    prepare.run(in_spans)
    assert contents(tmp_path / "out") == wanted


def test_a_damaged_first_pass_is_refused(in_spans: PrepareSection, tmp_path: Path) -> None:
    """It has the tokenizer, which all parts are encoded with."""
    _prepare_parts(in_spans)
    [tokenizer] = (tmp_path / ".out.preparing").glob("*/survey/tokenizer.model")
    _flip(tokenizer)
    for given in _GIVEN[:2]:
        with pytest.raises(UserError, match="survey, which has the tokenizer of all parts, is damaged"):
            prepare.run(in_spans, **given)
    assert tokenizer.exists()


def test_parts_by_other_versions_are_not_merged(
    in_spans: PrepareSection,
    wanted: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by a merge nor after an upgrade between two parts, or between a kill and the next attempt."""
    is_ = parts.versions()
    for given in _GIVEN:
        section = dataclasses.replace(in_spans, output=str(tmp_path / "-".join(["out", *given])))
        if given:
            _prepare_parts(section)
        else:
            _stopped(section, monkeypatch, SpillFolder, "collect_segments")
        with monkeypatch.context() as patch:
            patch.setattr(parts, "versions", lambda: {**is_, "zeromt": "9.9"})
            said = (
                rf"begun with other versions.* \(zeromt was {re.escape(is_['zeromt'])} and is 9.9\); go on with those"
            )
            with pytest.raises(UserError, match=said):
                prepare.run(section, **given)
        if given:
            prepare.run(section, merge=True)
        else:
            prepare.run(section)
        assert contents(Path(section.output)) == wanted, "what was there has stayed"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer": TokenizerSection(vocab_size=80, threads=1)}, "tokenizer.vocab_size was 64 and is 80"),
        ({"seed": 2, "max_pieces": 99}, "max_pieces was 512 and is 99, seed was 1 and is 2"),
        ({}, "train had another content of train.fr"),
    ],
)
def test_a_merge_with_a_forgotten_override_says_which(
    in_spans: PrepareSection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    said: str,
) -> None:
    """And trains no tokenizer before."""
    _prepare_parts(in_spans)
    monkeypatch.setattr(survey, "train_tokenizer", None)
    if not change:
        (tmp_path / "train.fr").write_text((tmp_path / "train.fr").read_text().replace("chat", "chien"))
    before = contents(tmp_path / ".out.preparing")
    with pytest.raises(
        UserError, match=rf"no part is prepared with these settings; .* are of others \({said}\): merge"
    ):
        prepare.run(dataclasses.replace(in_spans, **change), merge=True)
    assert contents(tmp_path / ".out.preparing") == before
    capsys.readouterr()
    monkeypatch.undo()
    prepare.run(dataclasses.replace(in_spans, **change), part=Part(1, 3))
    assert f"has work of other settings, which is not merged with this part ({said})" in capsys.readouterr().err
