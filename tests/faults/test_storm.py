"""Storms: a run that is killed, stopped and damaged at random moments ends as if nothing had happened."""

import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.faults.conftest import EVALUATED, LAST, Launch, MakeRun, Run, send
from tests.fuzz.forgery import KINDS
from tests.waiting import wait_until

MINUTES = 12
ROLES = {b"launcher.start.torchrun": "agent", b"trainer": "rank", b"zeromt": "launcher"}
"""By a word of its command, the first that is there."""
MOMENTS = {"launch": 6.0, "update": 1.5, "evaluation": 0.3, "save": 0.03}
"""After the launch, its first update, or the beginning of an evaluation or a save: seconds in which a blow may fall."""
BLOWS = {
    "nothing": {0}, "STOP": {0, 75}, "SIGTERM launcher": {0, 75, -15},
    "SIGUSR1 launcher": {0, 75, -10},
    "SIGKILL all": {0, -9}, "SIGKILL launcher": {0, -9}, "SIGKILL agent": {0}, "SIGKILL rank": {0, 75},
}  # fmt: skip
"""With the exit codes of a launch that they hit: 0 before the blow or in spite of it, a signal's while Python starts,
75 of a killed rank where the other, which torchrun then asks to stop, had not begun."""
HOME = (2, 2)
"""Ranks and ZeRO stage of the undisturbed run."""


@dataclass(frozen=True)
class Launched:
    """A launch, the blow that ends or disturbs it, and what is damaged after it."""

    blow: str
    moment: str
    late: float
    """How far into the seconds of its moment."""
    which: int
    """Of several ranks or files, modulo their number."""
    layout: tuple[int, int] = HOME
    damage: tuple[str, ...] = ()
    """To the newest checkpoints that are whole, a kind each; the oldest is left alone."""
    pointer: str = ""


def drawn(draw: random.Random) -> Launched:
    ways = ("flipped", "half", "empty", "missing")
    return Launched(
        blow=draw.choice(sorted(BLOWS)),
        moment=draw.choice(sorted(MOMENTS)),
        late=draw.random(),
        which=draw.randrange(10),
        layout=(draw.choice((1, 2)), draw.randrange(4)),
        damage=tuple(draw.choices(ways, k=draw.choice((0, 0, 1, 2)))),
        pointer=draw.choice(("", "", "", *ways)),
    )


Storm = Callable[[Sequence[Launched]], None]


@pytest.fixture
def storm(undisturbed: Run, make_run: MakeRun, launch: Launch) -> Storm:
    """Makes a run, launch after launch, and holds it against the undisturbed one."""

    def rage(launches: Sequence[Launched]) -> None:
        print(launches)
        run = make_run(name="storm")
        try:
            broken: set[int] = set()
            for one in launches:
                _launched(run, launch, one, broken)
            _launched(run, launch, Launched("nothing", "launch", 0, 0), broken)
            if all(one.layout == HOME for one in launches):
                run.assert_same(undisturbed)
            assert run.pairs() == undisturbed.pairs()
            assert run.losses() == pytest.approx(undisturbed.losses(), rel=1e-5)
            assert LAST in run.complete_steps()
            assert run.leftovers() == []
            assert not (run.folder / "STOP").exists()
        finally:
            for pid in run.processes():
                send(pid, signal.SIGKILL)
            shutil.rmtree(run.folder, ignore_errors=True)

    return rage


def _launched(run: Run, launch: Launch, one: Launched, broken: set[int]) -> None:
    """One launch from its beginning to its end, and what must be true of it and of what it leaves."""
    before = run.complete_steps()
    ranks, stage = one.layout
    command = launch(run, f"engine.zero_stage={stage}", ranks=ranks)
    step = _strike(run, command, one)
    done = command.finish()
    assert done.code in BLOWS[one.blow], (done.code, done.err[-4000:])
    wait_until(lambda: run.processes() == [], lambda: f"{len(run.processes())} processes are left")
    if before and "resumed from " in done.err:
        assert f"resumed from {run.checkpoint(before[-1])}:" in done.err, "there was a newer one"
    whole = run.complete_steps()
    assert done.code != 75 or max([0, *whole]) >= step, "what it had when it was asked to stop is lost"
    there = {int(path.name.removeprefix("step-")) for path in run.folder.glob("checkpoints/step-*")}
    assert there - {*whole} <= broken, "a checkpoint that nobody has damaged is not whole"
    for kind, step in zip(one.damage, whole[:0:-1], strict=False):
        broken.add(step)
        files = sorted(run.checkpoint(step).iterdir())
        KINDS[kind](files[one.which % len(files)], run.folder)
    if one.pointer and whole:
        KINDS[one.pointer](run.folder / "checkpoints" / "latest", run.folder)


def _strike(run: Run, command: Command, one: Launched) -> int:
    """Wait for the moment, let the blow fall, and return the last step of this launch before it, or 0."""
    before = run.last_logged()

    def has_come() -> bool:
        is_saving, step = any(run.folder.glob("checkpoints/tmp-step-*")), run.last_logged()
        moments = {"update": step > before, "evaluation": step > before and step % EVALUATED == 0, "save": is_saving}
        return moments.get(one.moment, True)

    while command.process.poll() is None and not has_come():
        time.sleep(0.001)
    time.sleep(one.late * MOMENTS[one.moment])
    step = run.last_logged()
    if one.blow == "STOP":
        run.folder.mkdir(exist_ok=True)
        (run.folder / "STOP").touch()
    elif one.blow != "nothing":
        name, role = one.blow.split()
        victims: list[int] = []
        while command.process.poll() is None and not victims:
            victims = _processes(run, role)
        for pid in victims if role == "all" else victims[one.which % max(1, len(victims)) :][:1]:
            send(pid, signal.Signals[name])
    return 0 if step == before else step


def _processes(run: Run, wanted: str) -> list[int]:
    pids = []
    for pid in run.processes():
        with suppress(OSError):  # it has ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if wanted in ("all", next((role for word, role in ROLES.items() if word in words), "")):
                pids.append(pid)
    return pids


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_storms(storm: Storm) -> None:
    end, draw = time.monotonic() + 60 * MINUTES, random.Random()
    while time.monotonic() < end:
        at_home = draw.random() < 0.5
        launches = [drawn(draw) for _ in range(draw.randint(2, 5))]
        storm([replace(one, layout=HOME) for one in launches] if at_home else launches)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["launch", "evaluation", "save"])
@pytest.mark.parametrize("victim", ["rank", "launcher", "all"])
def test_ten_kills(victim: str, moment: str, storm: Storm) -> None:
    """Five runs that are killed twice each have the updates of one that nothing disturbed."""
    draw = random.Random()
    for _ in range(5):
        storm([Launched(f"SIGKILL {victim}", moment, draw.random(), draw.randrange(10)) for _ in range(2)])
