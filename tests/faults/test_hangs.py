"""Row 7: a rank that hangs ends itself, is named, and is started again."""

import os
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened
from tests.waiting import wait_until
from trainer.runs.failure import find_cause, read_failures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SECONDS = 20
LIMITS = [f"supervision.step_minutes={SECONDS / 60}", "supervision.save_minutes=1"]
TIMES = 5


@pytest.mark.parametrize(
    ("point", "said"),
    [("save", "save of update 15: its limit is 1"), ("forward", "step of update 15: its limit is 0.333333")],
)
def test_held_gil(point: str, said: str, undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """The other rank hangs too, but waits: it is not the cause."""
    run = make_run(Fault(point=point, action="hold_gil", rank=1, step=15), overrides=LIMITS, after=(undisturbed, 10))
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    assert f"zeromt: rank 1 is stuck in {said} minutes" in done.err
    assert f"rank 1 on {HOST} failed first: stuck in {said}" in done.err
    assert "_hold_gil" in done.err, "no stack of the rank that held the GIL"
    assert "_hold_gil" in next(run.folder.glob("failures/*/1_*.stacks")).read_text()
    run.assert_same(undisturbed)


@pytest.fixture
def hung_file(tmp_path: Path) -> Iterator[Path]:
    """On a file system whose server is stopped; without bindfs a FIFO that nobody writes to."""
    back, place = tmp_path / "back", tmp_path / "hung"
    for folder in (back, place):
        folder.mkdir()
    if shutil.which("bindfs") is None or os.geteuid() != 0 or not Path("/dev/fuse").exists():
        os.mkfifo(place / "file")
        writer = os.open(place / "file", os.O_RDWR)
        yield place / "file"
        os.close(writer)
        return
    (back / "file").touch()
    with subprocess.Popen(["bindfs", "-f", str(back), str(place)], stdin=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: place.is_mount() or server.poll() is not None)
            server.send_signal(signal.SIGSTOP)
            yield place / "file"
        finally:
            server.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "--lazy", str(place)], capture_output=True)


def test_twenty_hangs(hung_file: Path, make_run: MakeRun, launch: Launch) -> None:
    """Every other update of one run: how long until each is noticed, and whether its rank is named."""
    actions = ["hold_gil", "fill_pipe", "read", "stop"]
    faults = [
        Fault(point="forward", action=action, rank=1, step=2 * number + 3, value=str(hung_file))
        for number, action in enumerate(TIMES * actions)
    ]
    settings = [
        *LIMITS, "engine.communication_timeout_minutes=3.5", "checkpoint.every_updates=1", "training.log_every=10",
        f"training.max_updates={2 * len(faults) + 3}", "evaluation.every_updates=0",
    ]  # fmt: skip
    run = make_run(*faults, overrides=settings)
    done = launch(run, restarts=1).finish(3400)
    assert done.code == 0, done.err[-4000:]
    starts = sorted((run.folder / "failures").iterdir())
    assert len(starts) == len(faults)
    seconds, named = defaultdict(list), defaultdict(list)
    for number, (fault, start) in enumerate(zip(faults, starts, strict=True)):
        begun = Path(f"{run.plan}.{number}.1.0").stat().st_mtime
        noticed = min(path.stat().st_mtime for path in start.glob("*.stacks"))
        cause = find_cause(read_failures(run.folder, start.name))
        assert cause is not None
        seconds[fault.action].append(noticed - begun)
        named[fault.action].append(cause.rank)
    for action in actions:
        times = ", ".join(f"{one:.1f}" for one in seconds[action])
        print(f"{action}: noticed after {times} s of {SECONDS}; its rank named in {sum(named[action])} of {TIMES}")
    assert named == {action: TIMES * [int(action != "stop")] for action in actions}
