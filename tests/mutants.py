"""Whether the tests see it when the product is wrong: mutants, drawn by a seed, and the tests that catch them. By hand.

    python -m tests.mutants draw FILE --seed 59 --number 60 [--under trainer]    choose mutants of functions' lines
    python -m tests.mutants watch FILE    run `make test` once: FILE then says which tests execute each line
    python -m tests.mutants try FILE [--part 0/2]    break each line in turn and run its tests

`watch` and `try` change the checkout that they run in while they run, so give them one of their own; two of them may
try a part each. A mutant is found again by its function and the text of its statement, wherever that stands by now.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tests.conftest import Command

Mutant = dict[str, Any]
PRODUCT = ("configs", "data_pipeline", "launcher", "model", "trainer", "zeromt")
MUTANT_SECONDS, MINUTES = 300, 90
PROBE = Path("configs/_probe.py")
HITS = Path("runs/mutants").resolve()
"""Of `watch`: a file for each process, of lines `hit TAB mutant TAB test` and `seconds TAB number TAB test`."""
HIT = f"""
import os
SEEN = set()
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test and (number, test) not in SEEN:
        SEEN.add((number, test))
        try:
            with open(f"{HITS}/{{os.getpid()}}", "a") as file:
                file.write(f"hit\\t{{number}}\\t{{test}}\\n")
        except OSError:  # a test takes the disk or the right to write from its processes
            pass
"""

_NEGATED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def _comparison(node: ast.AST) -> None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        node.ops = [_NEGATED[type(node.ops[0])]()]


def _boundary(node: ast.AST) -> None:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _BOUNDARY:
        node.ops[0] = _BOUNDARY[type(node.ops[0])]()


def _constant(node: ast.AST) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        node.value = not node.value if isinstance(node.value, bool) else node.value * 2 + 1


def _swapped(node: ast.AST) -> None:
    if isinstance(node, ast.Call) and len(node.args) > 1 and not isinstance(node.args[1], ast.Starred):
        node.args[:2] = node.args[1::-1]


def _removed(node: ast.AST) -> None:
    if (
        isinstance(node, ast.AugAssign | ast.Raise)
        or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript))
    ):
        node.__class__ = ast.Pass  # type: ignore[assignment]


KINDS: dict[str, Callable[[ast.AST], None]] = {
    "comparison": _comparison, "boundary": _boundary, "constant": _constant, "swapped": _swapped, "removed": _removed,
}  # fmt: skip


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each function with its name, those within classes and functions too, but none that Triton compiles."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef) and "jit" not in "".join(map(ast.unparse, child.decorator_list)):
            yield f"{inside}{child.name}", child
        name = f"{child.name}." if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
        yield from functions(child, inside + name)


def statements(function: Any) -> Iterator[tuple[list[ast.stmt], int]]:
    """Lists of statements and positions in them, of a function without those defined in it."""
    todo = [function.body]
    while todo:
        body = todo.pop()
        for position, statement in enumerate(body):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield body, position
                blocks = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
                todo += [b for one in blocks for k in ("body", "orelse", "finalbody") if (b := getattr(one, k, []))]


def parts(statement: ast.stmt) -> list[ast.AST]:
    """What a statement itself consists of, without the statements in it and annotations."""
    own_nodes: list[ast.AST] = [statement]
    for part in own_nodes:
        for field, value in ast.iter_fields(part):
            if field not in ("annotation", "op", "ops", "ctx"):
                nodes = value if isinstance(value, list) else [value]
                own_nodes += [
                    n for n in nodes if isinstance(n, ast.AST) and not isinstance(n, ast.stmt | ast.excepthandler)
                ]
    return own_nodes


def _text(statement: ast.stmt) -> str:
    """As it is parsed alone, where a text is a docstring."""
    return ast.unparse(ast.parse(ast.unparse(statement)))


def draw(seed: int, number: int, under: str) -> list[Mutant]:
    """As many of each kind, none twice in a statement."""
    sites: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for path in sorted(p for folder in PRODUCT for p in Path(folder).rglob("*.py") if str(p).startswith(under)):
        for function, tree in functions(ast.parse(path.read_text())):
            for body, position in statements(tree):
                text = _text(body[position])
                for part, kind in ((p, k) for p in range(len(parts(body[position]))) for k in KINDS):
                    if _mutate(text, part, kind) != text:
                        site = {"path": str(path), "function": function, "kind": kind, "statement": text, "part": part}
                        sites[kind].append(site)
    chance = random.Random(seed)
    chosen: dict[str, Mutant] = {}
    while len(chosen) < number:
        site = chance.choice(sites[list(KINDS)[len(chosen) % len(KINDS)]])
        chosen.setdefault(json.dumps([site["path"], site["function"], site["statement"]]), site)
    return list(chosen.values())


def _mutate(text: str, part: int, kind: str) -> str:
    """A statement with one of its parts changed."""
    tree = ast.parse(text)
    KINDS[kind](parts(tree.body[0])[part])
    return ast.unparse(tree)


@contextmanager
def changed(
    mutants: Mapping[int, Mutant], change: Callable[[list[ast.stmt], int, int], None]
) -> Iterator[AbstractSet[int]]:
    """The checkout with statements replaced, until the block ends; the numbers of those that are not there any more."""
    trees = {m["path"]: ast.parse(Path(m["path"]).read_text()) for m in mutants.values() if Path(m["path"]).exists()}
    places: dict[int, tuple[list[ast.stmt], int]] = {}
    for number, mutant in mutants.items():
        for name, function in functions(trees.get(mutant["path"], ast.Module([], []))):
            for body, position in statements(function) if name == mutant["function"] else ():
                if _text(body[position]) == mutant["statement"]:
                    places.setdefault(number, (body, position))
    for number, place in places.items():  # all are found before one changes: a statement may stand in another
        change(*place, number)
    texts = {path: Path(path).read_text() for path in trees}
    try:
        for path, tree in trees.items():
            Path(path).write_text(ast.unparse(ast.fix_missing_locations(tree)))
        yield mutants.keys() - places.keys()
    finally:
        for path, text in texts.items():
            Path(path).write_text(text)


def watch(mutants: Mapping[int, Mutant]) -> None:
    """Note for every mutant the tests that execute its line, all of a file where a fixture does, and their seconds."""
    shutil.rmtree(HITS, ignore_errors=True)
    HITS.mkdir(parents=True)

    def probe(body: list[ast.stmt], position: int, number: int) -> None:
        hit = ast.parse(f'__import__("configs._probe", fromlist=["hit"]).hit({number})').body
        body[position] = ast.If(ast.Constant(value=True), [*hit, body[position]], [])

    PROBE.write_text(HIT)
    try:
        with changed(mutants, probe) as missing:
            command = ["make", "test", f"pytest={sys.executable} -m pytest -q -p tests.mutants -n 2 --dist loadfile"]
            subprocess.run(command, check=False)
    finally:
        PROBE.unlink()
    lines = [line.split("\t", 2) for file in HITS.iterdir() for line in file.read_text().splitlines()]
    seconds = {test: float(number) for kind, number, test in lines if kind == "seconds"}
    for number, mutant in mutants.items():
        mutant["tests"] = None if number in missing else {}
    for kind, which, test in lines:
        if kind == "hit":
            node, _, when = test.rpartition(" ")
            start = node.partition("::")[0] + "::" if when == "(setup)" else node
            mutants[int(which)]["tests"] |= {t: s for t, s in seconds.items() if t.startswith(start)}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of the plugin that this module is for `watch`: seconds of each test."""
    if report.when == "call":
        with (HITS / str(os.getpid())).open("a") as file:
            file.write(f"seconds\t{report.duration}\t{report.nodeid}\n")


def attempt(number: int, mutant: Mutant) -> str:
    """caught (by which test), survived, late (the time was up), gone (the line) or untested (no test executes it)."""
    if not mutant["tests"]:
        return "gone" if mutant["tests"] is None else "untested"

    def mutate(body: list[ast.stmt], position: int, _: int) -> None:
        KINDS[mutant["kind"]](parts(body[position])[mutant["part"]])

    def distance(test: str) -> tuple[int, float]:
        return -len(os.path.commonpath([mutant["path"], test.removeprefix("tests/")])), mutant["tests"][test]

    with changed({number: mutant}, mutate) as missing, NamedTemporaryFile("w", suffix=".args") as chosen:
        if missing:
            return "gone"
        chosen.write("\n".join(sorted(mutant["tests"], key=distance)))
        chosen.flush()
        command = [sys.executable, "-m", "pytest", "-qxrfE", "--tb=no", "-p", "no:cacheprovider", f"@{chosen.name}"]
        try:
            done = Command(command, cwd=Path.cwd()).finish(MUTANT_SECONDS)
        except pytest.fail.Exception:
            return "caught: by a time-out" if sum(mutant["tests"].values()) < MUTANT_SECONDS / 2 else "late"
    failed = [line for line in done.out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.code and failed:
        return f"caught: {failed[0].partition(' - ')[0]}"
    return f"unknown: exit code {done.code}: {done.out[-300:]}" if done.code else "survived"


def main() -> None:
    """Draw, watch or try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "watch", "try"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=59)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--under", default="")
    parser.add_argument("--part", default="0/1")
    given = parser.parse_args()
    if given.what == "draw":
        given.file.write_text(json.dumps(draw(given.seed, given.number, given.under), indent=1))
        return
    mutants = dict(enumerate(json.loads(given.file.read_text())))
    if given.what == "watch":
        watch(mutants)
        given.file.write_text(json.dumps(list(mutants.values()), indent=1))
        return
    part, number_of_parts = map(int, given.part.split("/"))
    end = time.monotonic() + 60 * MINUTES
    for number, mutant in mutants.items():
        if number % number_of_parts == part and time.monotonic() < end:
            verdict = attempt(number, mutant)
            print(number, mutant["path"], mutant["function"], mutant["kind"], verdict, sep="\t", flush=True)


if __name__ == "__main__":
    main()
