"""Whatever is typed, and whatever a stranger's files hold: exit code 0, 2 or 75, one line, and nothing lost."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.forked import Forked
from tests.fuzz import places
from tests.fuzz.call import Call, perform, problems
from tests.fuzz.calls import calls
from tests.fuzz.forgery import build_outside, forge, forged_calls
from tests.waiting import PATIENCE

SANDBOX = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro / '
    "&& { ! mountpoint -q /dev || ! test -c /dev/null || mount -o remount,bind,ro /dev; } "
    '&& shift && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
)
SOME = pytest.param(20, (Phase.generate,), id="some")
MANY = [pytest.mark.slow, pytest.mark.timeout(2400)]
TRIED = tuple(Phase)


@pytest.fixture(scope="session")
def sandboxed() -> Iterator[Forked]:
    """Of root, to whom every place is open: without its rights, and with nothing to write in but temporary folders."""
    sandbox = ["unshare", "--mount", "sh", "-c", SANDBOX, "sh", tempfile.gettempdir()]
    try:
        works = os.getuid() == 0 and not subprocess.run([*sandbox, "true"], timeout=PATIENCE).returncode
    except FileNotFoundError:
        works = False
    with closing(Forked(*sandbox if works else ())) as forked:
        yield forked


def try_(forked: Forked, strategy: SearchStrategy[Call], number: int, phases: tuple[Phase, ...]) -> None:
    """Draw calls, and make each in a new folder."""
    genuine = places.made(forked)

    @settings(max_examples=number, phases=phases, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def make(call: Call) -> None:
        with tempfile.TemporaryDirectory(prefix="zf-", ignore_cleanup_errors=True) as made:
            root = Path(made)
            folder, outside = root / "here", root / "outside"
            (root / "home").mkdir()
            places.build(genuine, folder)
            build_outside(outside)
            for name, text in call.files.items():
                (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
            if call.forged:
                forge(folder / call.forged[0], call.forged[1], outside)
            before, canaries = places.contents(folder), places.contents(outside)
            [outcome] = forked.ranks(1, perform, call, root, cwd=folder, meet=False, seconds=2 * PATIENCE)
            after = places.contents(folder)
            wrong = problems(call, outcome, folder, [name for name in before if before[name] != after.get(name)])
            assert not wrong, f"{wrong}\n{outcome.out[-500:]}\n{outcome.err[-2500:]}"
            assert places.contents(outside) == canaries, "something outside has changed"

    make()


@pytest.mark.parametrize(("number", "phases"), [SOME, pytest.param(800, TRIED, marks=MANY, id="many")])
def test_calls(number: int, phases: tuple[Phase, ...], sandboxed: Forked) -> None:
    try_(sandboxed, calls(), number, phases)


@pytest.mark.parametrize(("number", "phases"), [SOME, pytest.param(500, TRIED, marks=MANY, id="many")])
def test_forged_files(number: int, phases: tuple[Phase, ...], sandboxed: Forked) -> None:
    try_(sandboxed, forged_calls(places.made(sandboxed)), number, phases)
