"""The launcher's hold on its child."""

import signal
import subprocess
import sys

import pytest

from tests.conftest import environment
from tests.waiting import PATIENCE

SUPERVISE = """if True:
    import os, signal, sys, time
    from launcher.machine.supervise import Supervisor
    class Late:
        def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
            kill(pid, number)
    with Supervisor() as supervisor:
        code = supervisor.run([sys.executable, "-c", sys.argv[1]], os.environ)
        if len(sys.argv) == 2:
            supervisor.settle()
    sys.late = Late()  # goes with the module sys, the last of all: Python's own handlers are back by then
    sys.exit(code)
"""


@pytest.mark.parametrize("code", [0, 75])
def test_signal_behind_the_end_does_not_change_the_exit_code(code: int) -> None:
    entry = [sys.executable, "-c", SUPERVISE, f"raise SystemExit({code})"]
    assert subprocess.run(entry, env=environment(), timeout=PATIENCE).returncode == code
    assert subprocess.run([*entry, "unsettled"], env=environment(), timeout=PATIENCE).returncode == -signal.SIGTERM


def test_request_reaches_the_child_once() -> None:
    child = """if True:
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        print("up", flush=True)
        time.sleep(1000)
    """
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, child],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert said.count("asking the commands to stop") == 1
