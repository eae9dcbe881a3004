"""Of ranks that are stuck at the same time, the one furthest behind is named, and NCCL's traces are kept."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from configs.process import flight_recorder
from configs.process.environment import PRIVATE
from configs.process.positions import Comparison, Position, leave, read_positions
from tests.conftest import environment
from tests.waiting import PATIENCE, wait_until
from trainer.runs.failure import find_cause, read_failures
from trainer.runs.status import LAUNCH_ID

RANK = """
import sys, time
from pathlib import Path
from configs.process.positions import Position
from trainer.ranks.watchdog import Watchdog

watchdog = Watchdog({rank})
watchdog.start()
watchdog.note_in(Path("stuck.log"))
watchdog.enter("step", 0.5, 7)
watchdog.reach(Position(update=7, micro_batch={micro_batch}, in_device={in_device}))
while True:
    {does}
"""
SPINS = "pass"


def at(update: int, micro_batch: int, in_device: bool = True) -> Position:
    return Position(update=update, micro_batch=micro_batch, in_device=in_device)


def stuck(folder: Path, rank: int, micro_batch: int, *, in_device: bool = True) -> "subprocess.Popen[str]":
    """A process that computes, or waits for its GPU: both look alike to the kernel."""
    return start(RANK.format(rank=rank, micro_batch=micro_batch, in_device=in_device, does=SPINS), folder)


def start(code: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment() | {LAUNCH_ID: "start", PRIVATE: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ends_of(ranks: dict[int, "subprocess.Popen[str]"]) -> dict[int, tuple[float, str]]:
    """When each has ended, and the last line that it left."""
    began, found = time.monotonic(), dict[int, tuple[float, str]]()

    def wait(rank: int) -> None:
        _, err = ranks[rank].communicate(timeout=PATIENCE)
        assert ranks[rank].returncode == -signal.SIGKILL
        found[rank] = (time.monotonic() - began, err.splitlines()[-1])

    threads = [threading.Thread(target=wait, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_ranks_that_spin_behind_a_collective_the_one_furthest_behind_ends_first_and_is_named(tmp_path: Path) -> None:
    """Rank 1 never came to the collective that the others wait in; all three look as if they computed."""
    found = ends_of({rank: stuck(tmp_path, rank, micro_batch) for rank, micro_batch in ((0, 3), (1, 2), (2, 3))})
    assert min(found, key=lambda rank: found[rank][0]) == 1
    for rank in (0, 2):
        assert found[rank][1].endswith(
            "it is at micro-batch 3 of update 7 on its device; "
            "rank 1 is further behind, at micro-batch 2 of update 7 on its device"
        )
    assert found[1][1].endswith("it is at micro-batch 2 of update 7 on its device")
    notes = tmp_path / "failures" / "start"
    wait_until(lambda: len(list(notes.glob("rank-*.json"))) == 3)
    cause = find_cause(read_failures(tmp_path, "start"))
    assert cause is not None
    assert cause.rank == 1
    assert "at micro-batch 2 of update 7" in cause.first_line
    assert read_positions(notes)[1] == at(7, 2), "kept with the notes"


def test_a_rank_that_computes_on_the_host_is_no_victim(tmp_path: Path) -> None:
    """It is further than the other, and yet the cause: nothing on a device keeps it."""
    found = ends_of({0: stuck(tmp_path, 0, 3, in_device=False), 1: stuck(tmp_path, 1, 2)})
    assert found[0][0] < found[1][0]


def test_a_rank_that_goes_on_takes_its_position_back(tmp_path: Path) -> None:
    leave(tmp_path, 3, at(2, 1))
    (tmp_path / "position-9.json").write_text("{")
    comparison = Comparison(tmp_path, 5, at(2, 4))
    wait_until(lambda: comparison.behind == (3, at(2, 1)))
    assert set(read_positions(tmp_path)) == {3, 5}
    comparison.end()
    wait_until(lambda: set(read_positions(tmp_path)) == {3})


RECORDER = """
import os
from configs.process import flight_recorder
flight_recorder.choose_pipe(os.environ)
flight_recorder.switch_on(os.environ)
flight_recorder.keep_in(Path("failures/start"), os.environ)
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "{rank}.pipe"
os.mkfifo(pipe)
reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print(pipe, flush=True)
def record():  # what torch's monitoring thread does
    while not os.read(reader, 128): time.sleep(0.1)
    Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "{rank}").write_text("the collectives of rank {rank}")
"""


def test_a_stuck_rank_is_asked_for_its_trace_which_is_kept_with_the_notes(tmp_path: Path) -> None:
    code = RANK.replace("watchdog = Watchdog(", RECORDER + "watchdog = Watchdog(", 1)
    thread = "import threading; threading.Thread(target=record, daemon=True).start()"
    code = code.replace("watchdog.enter", f"{thread}\nwatchdog.enter")
    code = code.format(rank=3, micro_batch=1, in_device=True, does="time.sleep(0.01)")
    process = start(code, tmp_path)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, err
    assert (tmp_path / "failures" / "start" / "nccl-trace-rank-3").read_text() == "the collectives of rank 3"
    wait_until(lambda: not Path(out.strip()).exists())


def test_variables_of_the_flight_recorder(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    flight_recorder.switch_on(environ)
    flight_recorder.keep_in(tmp_path / "failures" / "x", environ)
    prefix = str(tmp_path / "failures" / "x" / "nccl-trace-rank-")
    assert environ == {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix,
    }
    assert flight_recorder.pipe_of(environ, 4) is None
    flight_recorder.choose_pipe(private := {"ZEROMT_PRIVATE": str(tmp_path)})
    assert flight_recorder.pipe_of(private, 4) == tmp_path / "nccl-4.pipe"
    flight_recorder.leave_nothing(tmp_path / "failures" / "x")
    assert list(tmp_path.iterdir()) == []
    own = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/"}
    os.mkfifo(tmp_path / "4.pipe")
    for _ in range(2):  # and where there is none
        flight_recorder.remove_pipe(own, 4)
        assert list(tmp_path.iterdir()) == []


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    own = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/mine/",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/pipes/",
    }
    environ = dict(own)
    flight_recorder.choose_pipe(environ)
    flight_recorder.switch_on(environ)
    flight_recorder.keep_in(tmp_path / "failures" / "x", environ)
    assert environ == own
    assert not (tmp_path / "failures").exists()
    assert flight_recorder.pipe_of(own, 4) == Path("/pipes/4.pipe")


def test_torch_knows_these_variables() -> None:
    """Names that another torch no longer reads would switch nothing on."""
    import torch

    root = Path(torch.__file__).parent
    headers = root / "include" / "torch" / "csrc" / "distributed" / "c10d"
    told = "".join((headers / name).read_text() for name in ("FlightRecorder.hpp", "ProcessGroupNCCL.hpp"))
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
        assert f'"{name}"' in told
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in told
    library = (root / "lib" / "libtorch_cpu.so").read_bytes()
    assert re.search(rb"TORCH_FR_DUMP_TEMP_FILE", library)
