"""What is shown is one line, and JSON that every reader takes."""

import json

import pytest

from configs.process.text import to_json, visible, visible_name


def test_visible() -> None:
    assert (
        visible("a\nb\u2028\x1b[31m\ud800\u85cf \u05d0\u200d\u0301")
        == "a\\nb\\u2028\\x1b[31m\\ud800\u85cf \u05d0\u200d\u0301"
    )


def test_numbers_that_are_not_finite_are_null() -> None:
    text = to_json({"a": float("inf"), "b": [1, (float("nan"), "NaN")], 3: 1.5})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": None, "b": [1, [None, "NaN"]], "3": 1.5}


def test_upright() -> None:
    """A name turns nothing behind it; letters that are read from the right stay."""
    assert visible_name("a\u202eb\u2066\n\u05d0\u200f") == "a\\u202eb\\u2066\\n\u05d0\u200f"
