"""docs/benchmarks.md: every figure on it is in a result, and every result is on it."""

import json
import re
from typing import Any

import pytest

from tests.conftest import REPO

PAGE = REPO / "docs" / "benchmarks.md"
NUMBER = re.compile(r"(?<![A-Za-z_\d])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")
"""Digits behind a letter belong to a name: fp32, test_2016_flickr."""
PROSE = ("notes", "details", "command")
"""Fields of a result that no table is made from."""
LINK = re.compile(r"\]\(([^)]*)\)")
CODE = re.compile(r"`[^`]*`")


def figures_of(value: Any) -> tuple[set[float], set[str]]:
    """The numbers and the words with digits of a JSON value."""
    match value:
        case dict():
            found = [figures_of(item) for pair in value.items() for item in pair]
        case list():
            found = [figures_of(item) for item in value]
        case str():
            return set(), set(NUMBER.findall(value))
        case int() | float():
            return {float(value)}, set()
        case _:
            return set(), set()
    return set().union(*(f[0] for f in found)), set().union(*(f[1] for f in found))


def is_in(token: str, percent: bool, numbers: set[float], words: set[str]) -> bool:
    """Whether a figure is one of the numbers as it is written, or stands in one of the words."""
    if token in words:
        return True
    written = float(token.replace(",", ""))
    if "e" in token:
        return any(f"{number:.2e}" == token or f"{number:.0e}" == token for number in numbers)
    digits = len(token.partition(".")[2])
    scaled = {100 * number for number in numbers} if percent else numbers
    return any(f"{number:.{digits}f}" == f"{written:.{digits}f}" for number in scaled)


def unknown_figures(text: str) -> list[str]:
    """The figures of the page that are in none of the results that their section names."""
    found = []
    for section in text.split("\n## ")[1:]:
        files = [PAGE.parent / link for link in LINK.findall(section) if link.endswith(".json")]
        known = [figures_of({k: v for k, v in json.loads(f.read_text()).items() if k not in PROSE}) for f in files]
        numbers, words = set().union(*(k[0] for k in known)), set().union(*(k[1] for k in known))
        shown = CODE.sub("", LINK.sub("]", section))
        for match in NUMBER.finditer(shown):
            token = match[0]
            if not is_in(token, shown[match.end() : match.end() + 1] == "%", numbers, words):
                found.append(f"{section.splitlines()[0]}: {token}")
    return found


def test_every_figure_is_in_a_result_that_its_section_names_and_no_result_is_left_out() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert unknown_figures(text) == []
    assert text.count("| ") > 300, "the page has its tables"
    linked = {(PAGE.parent / link).resolve() for link in LINK.findall(text) if link.endswith(".json")}
    assert linked == set((REPO / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize(("old", "new"), [("| 4,049 |", "| 4,048 |"), ("| 938 |", "| 939 |"), ("86% (", "85% (")])
def test_a_figure_that_nothing_was_measured_for_is_found(old: str, new: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    first = text.index(old)
    assert unknown_figures(text[:first] + new + text[first + len(old) :])
