"""Who reaches a port of a run neither runs code nor stops it."""

import os
import signal
import stat
from pathlib import Path

from configs.process.environment import PRIVATE
from tests.conftest import descendants
from tests.faults.conftest import Launch, MakeRun
from tests.faults.ports import attack, ports_of
from tests.waiting import wait_until


def test_on_one_machine_nothing_listens_beyond_it_and_nothing_sent_there_is_run(
    make_run: MakeRun, launch: Launch, tmp_path: Path
) -> None:
    run = make_run(overrides=("training.max_updates=100000", "evaluation.every_updates=0"))
    command = launch(run, restarts=0)
    wait_until(lambda: run.last_logged() >= 3)
    pids = [command.process.pid, *descendants(command.process.pid)]
    ports = ports_of(pids)
    assert ports, "gloo's"
    assert [port for port in ports if not port.is_of_this_machine_alone] == []
    for port in ports:
        assert len(attack(port, tmp_path / "executed")) == 5
    [folder] = {value for pid in pids for value in _variables(pid, PRIVATE)}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert Path(folder, "store").exists()
    before = run.last_logged()
    wait_until(lambda: run.last_logged() >= before + 3)
    os.kill(command.process.pid, signal.SIGTERM)
    done = command.finish()
    assert done.code == 75, done.err[-4000:]
    assert not (tmp_path / "executed").exists()
    assert not Path(folder).exists()


def _variables(pid: int, name: str) -> list[str]:
    """The values of a variable in a process's environment."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(one.partition(b"=")[2]) for one in content if one.startswith(f"{name}=".encode())]
