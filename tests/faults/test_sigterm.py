"""Row 4: SIGTERM to `zeromt launch local` at random moments: start-up, step, save, evaluation, shutdown.

The exit code is 75 with a complete checkpoint of a step no older than the signal, 75 before update 1 with what was
there untouched, 0 if it had finished, and 143 only before Python has run a line of it.
"""

import hashlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.faults.conftest import Launch, MakeRun, Run, injected, launch_command, send
from tests.faults.injected import write_plan
from tests.waiting import PATIENCE, wait_until
from trainer.runs.layout import step_folder

NUM_TRIALS, QUICK = 50, (5,)
SEED = 4
LAST = 24
LAST_SECONDS = 1.0
"""About those between the last update and the end."""
BEGUN = 10
"""Half of the trials go on from this step."""
SETTINGS = (
    f"training.max_updates={LAST}",
    "evaluation.every_updates=4",
    "evaluation.max_pairs=100",
    "checkpoint.every_updates=2",
    "checkpoint.keep_last=30",
)


@dataclass(frozen=True)
class Timeline:
    """Of a run that nobody asks to stop, in seconds since its start."""

    first_update: float
    last_update: float


@pytest.fixture(scope="module")
def timeline(undisturbed: Run, shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    folder = tmp_path_factory.mktemp("timeline")
    run = Run(
        folder=folder / "timeline",
        plan=folder / "timeline.plan",
        settings=(*undisturbed.settings, *SETTINGS, f"output={folder}", "name=timeline"),
    )
    write_plan(run.plan, [])
    begin = time.monotonic()
    command = Command(injected(shim, run, *launch_command(run)), cwd=folder)
    seen: dict[int, float] = {}
    while command.process.poll() is None and time.monotonic() < begin + PATIENCE:
        seen.setdefault(run.last_logged(), time.monotonic() - begin)
        time.sleep(0.02)
    done = command.finish()
    assert done.code == 0, done.err[-4000:]
    return Timeline(first_update=seen[min(seen.keys() - {0})], last_update=seen[LAST])


@dataclass(frozen=True)
class Moment:
    """Of a signal: so many seconds after a step was logged; step 0 is the start of the command."""

    step: int
    seconds: float


def moment(trial: int, begun: int, timeline: Callable[[], Timeline]) -> Moment:
    """In turns before update 1, while it trains, saves and evaluates, and about its end.

    The later two follow the run, so that they lie where they are meant to, however fast the machine is at the time.
    What comes before update 1 has no step to follow and goes by the clock.
    """
    draw = random.Random(f"{SEED} {trial}")
    part = ("before", "training", "training", "before", "training", "end")[trial % 6]
    if part == "before":
        return Moment(0, draw.uniform(0, timeline().first_update))
    if part == "end":
        return Moment(LAST, draw.uniform(0, LAST_SECONDS))
    an_update = (timeline().last_update - timeline().first_update) / LAST
    return Moment(draw.randrange(begun + 1, LAST), draw.uniform(0, 2 * an_update))


def digests(folder: Path) -> dict[str, str]:
    """Of every file of a run's checkpoints, the pointer included."""
    files = [p for p in (folder / "checkpoints").rglob("*") if p.is_file()]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize(
    "trial", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in range(NUM_TRIALS)]
)
def test_sigterm(
    trial: int,
    request: pytest.FixtureRequest,
    undisturbed: Run,
    make_run: MakeRun,
    launch: Launch,
    record_property: Callable[[str, object], None],
) -> None:
    begun = BEGUN if trial % 2 else 0
    run = make_run(overrides=SETTINGS, after=(undisturbed, begun) if begun else None)
    before = digests(run.folder)
    when = moment(trial, begun, lambda: request.getfixturevalue("timeline"))
    begin = time.monotonic()
    command = launch(run)
    if when.step:
        wait_until(lambda: run.last_logged() >= when.step)
    time.sleep(when.seconds)
    at_signal, was_running = run.last_logged(), command.process.poll() is None
    asked = time.monotonic()
    send(command.process.pid, signal.SIGTERM)
    done = command.finish()
    for name, value in (
        ("moment", str(when)),  # xdist carries plain values alone
        ("seconds", asked - begin),
        ("at", at_signal),
        ("running", was_running),
        ("code", done.code),
        ("took", time.monotonic() - asked),
    ):
        record_property(name, value)
    steps = run.complete_steps()

    assert run.processes() == []
    assert run.leftovers() == []
    after = digests(run.folder)
    for name in before.keys() - {"checkpoints/latest"}:
        assert after.get(name) == before[name], f"{name} was touched"
    if done.code == -signal.SIGTERM:  # 143 for a shell
        assert (done.out, done.err) == ("", "")
        assert after == before
        return
    if done.code == 0:
        assert run.status()["state"] == "finished"
        assert steps[-1] == run.last_logged() == LAST
        return
    assert done.code == 75, f"{when}\n{done.out[-2000:]}\n{done.err[-4000:]}"
    newest = max(steps, default=0)
    assert newest >= at_signal, "the checkpoint is older than the signal"
    if newest == begun:
        assert after == before
    else:
        assert run.pointer() == step_folder(newest)
        assert run.last_logged() == newest, "updates were made that are not saved"
