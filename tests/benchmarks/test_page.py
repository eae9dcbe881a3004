"""docs/benchmarks.md: every figure on it is in a result, and it is what the command makes of the results today."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from benchmarks import page
from benchmarks.common import results
from benchmarks.common.results import Result
from benchmarks.report.tables import markdown, newest, on_each_machine, pivoted

NUMBER = re.compile(r"(?<![A-Za-z_\d])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")
"""Digits behind a letter belong to a name: fp32, test_2016_flickr."""
PROSE = ("notes", "details", "command")
"""Fields of a result that no table is made from."""
LINK = re.compile(r"\]\(([^)]*)\)")


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
        files = [page.PAGE.parent / link for link in LINK.findall(section) if link.endswith(".json")]
        known = [figures_of({k: v for k, v in json.loads(f.read_text()).items() if k not in PROSE}) for f in files]
        numbers, words = set().union(*(k[0] for k in known)), set().union(*(k[1] for k in known))
        shown = LINK.sub("]", section)
        for match in NUMBER.finditer(shown):
            token = match[0]
            if not is_in(token, shown[match.end() : match.end() + 1] == "%", numbers, words):
                found.append(f"{section.splitlines()[0]}: {token}")
    return found


def test_every_figure_on_the_page_is_in_a_result_that_its_section_names() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert unknown_figures(text) == []
    assert text.count("| ") > 500, "the page has its tables"


@pytest.mark.parametrize(("old", "new"), [("| 4,049 |", "| 4,048 |"), ("| 938 |", "| 939 |"), ("0.50%", "0.51%")])
def test_a_figure_that_nothing_was_measured_for_is_found(old: str, new: str) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    first = text.index(old)
    assert unknown_figures(text[:first] + new + text[first + len(old) :])


def test_the_page_and_its_plots_are_what_the_command_makes() -> None:
    made = page.make(results.load(), page.PAGE)
    assert made.pop(page.PAGE) == page.PAGE.read_text(encoding="utf-8"), "stale: run `python -m benchmarks.page`"
    kept = {path: path.read_text(encoding="utf-8") for path in (page.PAGE.parent / "benchmarks").iterdir()}
    assert set(kept) == set(made)
    drawn_with = {re.search(r"Matplotlib v([\d.]+)", text)[1] for text in kept.values()}  # type: ignore[index]
    if drawn_with != {matplotlib.__version__}:
        pytest.skip(f"plots are drawn with Matplotlib {drawn_with}, here is {matplotlib.__version__}")
    assert kept == made, "stale: run `python -m benchmarks.page`"


def result(tmp_path: Path, number: int, **fields: Any) -> Result:
    base = {"question": "q", "date": f"2026-01-0{number}", "commit": "abc", "machine": "m", "cores": 2, "versions": {}}
    base |= {"command": "c", "estimated": [], "settings": {}, "notes": [], "rows": []}
    path = tmp_path / "q" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(results.to_text(base | fields | {"details": {"raw": [1]}}))
    return results.load(tmp_path)[-1]


def test_the_newest_result_with_what_a_table_needs_is_taken(tmp_path: Path) -> None:
    result(tmp_path, 1, rows=[{"part": "p", "speed": 3.0}])
    result(tmp_path, 2, rows=[{"part": "p", "other": 1.0}])
    found = results.load(tmp_path)
    assert newest("q", "p", needs=["speed"])(found) == ([found[0]], [{"part": "p", "speed": 3.0}])
    assert newest("q", "p")(found)[0] == [found[1]]
    assert newest("another")(found) == ([], [])


def test_each_machine_has_its_newest_row(tmp_path: Path) -> None:
    for number, machine, speed in ((1, "a", 1), (2, "a", 2), (3, "b", 3)):
        result(tmp_path, number, machine=machine, rows=[{"speed": speed}])
    chosen, rows = on_each_machine("q", lambda r: {"speed": r.rows[0]["speed"]})(results.load(tmp_path))
    assert rows == [{"machine": "b", "speed": 3}, {"machine": "a", "speed": 2}]
    assert [r.date for r in chosen] == ["2026-01-03", "2026-01-02"]


def test_what_is_estimated_is_called_so_in_its_table_and_below(tmp_path: Path) -> None:
    rows = [{"run": "wmt_base", "peak_gib": 12.5, "planned_gib": 13.0}]
    result(tmp_path, 1, question="device_training", rows=rows, estimated=["planned_gib"])
    text = page.make(results.load(tmp_path), tmp_path / "page.md")[tmp_path / "page.md"]
    assert "| run | peak GiB | planned GiB (estimated) |" in text
    assert "Estimated columns: planned_gib (device_training)." in text
    assert "mfu (device_budget)" in page.PAGE.read_text().split("\n## What is estimated\n")[1]


def test_rows_that_differ_in_one_thing_become_one(tmp_path: Path) -> None:
    rows = [{"program": "x", "search": s, "speed": v, "target": 2} for s, v in (("greedy", 1.0), ("beam", [3, 2, 4]))]
    result(tmp_path, 1, rows=rows)
    _, found = pivoted(newest("q"), over="search", by="program", keys=["speed"])(results.load(tmp_path))
    assert [(r["speed of greedy"], r["speed of beam"], r["target"]) for r in found] == [(1.0, [3, 2, 4], 2)]


def test_a_cell_of_several_rounds_has_its_lowest_and_highest() -> None:
    from benchmarks.report.tables import Table, column

    table = Table(choice=newest("q"), columns=(column("a", "A", ".1f"), column("b", "B"), column("none", "N")))
    rows = [{"a": results.figure([3.0, 1.0, 2.0]), "b": results.figure([1234])}]
    assert markdown(table, [], rows).splitlines()[2] == "| 2.0 (1.0 to 3.0) | 1,234 |"
