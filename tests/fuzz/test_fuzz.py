"""Whatever is typed ends as it must: no traceback, no hang, no input changed, exit code 1 only for what is listed."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.options.values import new_path, other_file, output_file
from tests.fuzz import campaign, slots
from tests.fuzz.call import OUTPUT_OPTIONS, Call, Outcome
from tests.fuzz.calls import FIELDS, Target, actions, fields, targets
from tests.fuzz.client import Server, judge
from zeromt.cli.main import COMMANDS

SEED, SLOW_SEED = 35, 2025
"""Kept, so that a call that fails, fails again."""
NUMBER = 30
FOUND = Path(__file__).with_name("found.jsonl")
"""Calls that once ended badly, one a line."""


def _make(calls: Sequence[Call], server: Server | None = None) -> None:
    problems = campaign.make(calls, server=server)
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n\n" + "\n\n".join(problems)


def test_some_calls(server: Server) -> None:
    _make(campaign.draw(NUMBER, SEED), server)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_calls() -> None:
    number, seed = (int(os.environ.get(f"ZEROMT_FUZZ_{k}", v)) for k, v in (("CALLS", 2000), ("SEED", SLOW_SEED)))
    _make(campaign.draw(number, seed))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_odd_place_in_every_slot() -> None:
    _make(list(slots.calls()))


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_calls_that_once_ended_badly(every: int, server: Server) -> None:
    _make([Call.from_json(line) for line in FOUND.read_text().splitlines()[::-every]], server)


def test_every_option_and_field_has_its_turn() -> None:
    """Also those that are not there yet."""

    @dataclass
    class Inner:
        new: int = 1

    @dataclass
    class Outer:
        section: Inner
        other: str = ""

    assert dict(fields(Outer)) == {"section": Inner, "section.new": int, "other": str}
    about = targets(ranks=False)
    assert {t.command for t in about if t.option} == set(COMMANDS)
    assert {t.field for t in about if t.field} == set(FIELDS) >= {"evaluation.search", "evaluation.search.beam"}
    assert Target("translate", option="beam") in about


def test_the_judge_knows_every_option_that_writes() -> None:
    writing = [a for command in COMMANDS for a in actions(command) if a.type in (new_path, other_file, output_file)]
    assert [a.option_strings for a in writing if not {*a.option_strings} & {*OUTPUT_OPTIONS}] == []


def test_the_same_seed_draws_the_same_calls() -> None:
    drawn = campaign.draw(60, SEED)
    assert drawn == campaign.draw(60, SEED) != campaign.draw(60, SEED + 1)
    assert (len(drawn), sum(call.starts_ranks for call in drawn)) == (60, 3)


def test_what_is_wrong_is_found() -> None:
    """By the judge, of outcomes that no call must have."""
    call = Call(argv=("translate", "runs/small", "-i", "corpus/in.en", "-o", "corpus/v.fr"))
    files = {"corpus/in.en": "1", "corpus/v.fr": "1", "corpus/v.en": "1"}

    def problems(after: dict[str, str] = files, *, of: Call = call, **what: object) -> int:
        good = {
            "code": 2,
            "out": "",
            "err": "zeromt: error: x\n",
            "seconds": 1.0,
            "timed_out": False,
            "hung": False,
            "left": (),
        }
        return len(judge(of, Outcome(**{**good, **what}), files, after))  # type: ignore[arg-type]

    assert problems() == problems(files | {"corpus/v.fr": "2"}) == 0
    assert problems(files | {"corpus/in.en": "2"}) == problems({"corpus/v.fr": "1", "corpus/v.en": "1"}) == 1
    both = Call(argv=(*call.argv, "--target=corpus/v.fr"))
    assert problems(files | {"corpus/v.fr": "2"}, of=both) == 1, "it is an input too"
    assert problems(err="zeromt: error: x\nTraceback (most recent call last):\n") == 1
    assert problems(code=1, err="OSError\n") == problems(code=-9) == problems(code=2, err="") == 1
    assert problems(code=1, err="zeromt: error: x: No space left on device\n") == 0
    assert problems(hung=True, timed_out=True) == problems(left=("1 sleep",)) == 1
