"""No test says how quick a machine is: a clock's reading is held against no upper bound, and no limit is a short one.

Times belong to benchmarks/. A test says what was imported, counted, and in which order; what hangs is ended by
`tests.waiting`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPO

CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time_ns", "times"}
SHORT = 60.0
"""Seconds: what is ended after fewer may have been on its way."""


def _reads_clock(node: ast.AST, names: set[str]) -> bool:
    """Whether a clock is read in an expression, or one of these names stands in it."""
    return any(
        (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CLOCKS)
        or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def _bounded(comparison: ast.Compare) -> Iterator[ast.expr]:
    """What is said to be less than something else."""
    sides = [comparison.left, *comparison.comparators]
    for left, operator, right in zip(sides, comparison.ops, sides[1:], strict=False):
        if isinstance(operator, ast.Lt | ast.LtE):
            yield left
        elif isinstance(operator, ast.Gt | ast.GtE):
            yield right


def claims_of(source: str) -> list[int]:
    """Lines of a test file that hold a time against an upper bound, or that end a wait after less than a minute."""
    found = []
    for scope in ast.walk(ast.parse(source)):
        if isinstance(scope, ast.Call):
            name = "seconds" if isinstance(scope.func, ast.Name) and scope.func.id == "wait_until" else "timeout"
            limits = [keyword.value for keyword in scope.keywords if keyword.arg == name]
            numbers = [(n.value, n.lineno) for n in limits if isinstance(n, ast.Constant)]
            found += [line for number, line in numbers if isinstance(number, int | float) and number < SHORT]
        if not isinstance(scope, ast.FunctionDef):
            continue
        taken: set[str] = set()  # names of differences between two readings
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and _reads_clock(node.value, set()):
                is_difference = isinstance(node.value.op, ast.Sub)
                taken |= {target.id for target in node.targets if isinstance(target, ast.Name) and is_difference}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assert):
                comparisons = [part for part in ast.walk(node.test) if isinstance(part, ast.Compare)]
                found += [c.lineno for c in comparisons if any(_reads_clock(side, taken) for side in _bounded(c))]
    return sorted(set(found))


@pytest.mark.parametrize(
    ("line", "is_claim"),
    [
        ("assert time.monotonic() - begin < 3", True),
        ("assert 0.5 <= time.perf_counter() - begin < 3", True),
        ("assert 3 > time.monotonic() - begin", True),
        ("seconds = time.process_time() - begin; assert seconds <= 3", True),
        ("assert time.monotonic() < deadline, 'an own loop'", True),
        ("process.communicate(timeout=30)", True),
        ("wait_until(is_there, seconds=5)", True),
        ("assert time.monotonic() - begin >= 0.5", False),
        ("assert figures['seconds'] <= time.monotonic() - begin", False),
        ("process.communicate(timeout=PATIENCE)", False),
    ],
)
def test_what_is_a_claim(line: str, is_claim: bool) -> None:
    assert bool(claims_of(f"def test() -> None:\n    begin = time.monotonic()\n    {line}")) is is_claim


def test_no_test_claims_seconds() -> None:
    files = [path for path in (REPO / "tests").rglob("*.py") if path != Path(__file__)]
    found = [f"{path.relative_to(REPO)}:{line}" for path in files for line in claims_of(path.read_text())]
    assert found == [], "an upper bound of seconds: tests/test_seconds.py says what to assert in its place"
