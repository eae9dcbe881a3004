import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.common import measure
from benchmarks.training import train

MIB = 2**20

# A process and a child of it, each of which holds so many bytes and says so.
PARENT = """
import subprocess, sys
held = b"x" * (64 << 20)
code = 'held = b"x" * (96 << 20); print(flush=True); input()'
child = subprocess.Popen([sys.executable, "-c", code], stdin=0)
child.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_whole_tree_is_watched() -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    watch = measure.TreeMemory(process.pid, seconds=0.01)
    while watch.peak.num_samples < 3:
        time.sleep(0.01)
    process.communicate(b"\n")
    peak = watch.finish()
    assert process.returncode == 0
    for total in (peak.anonymous, peak.high_water):
        assert 160 * MIB < total < 220 * MIB


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    measure.print_table("Title", [{"name": "a", "figure": "1"}, {"name": "long", "figure": "12,345"}])
    assert capsys.readouterr().out == "\nTitle\nname  figure\na          1\nlong  12,345\n"


@pytest.mark.parametrize("value", ["missing", "file"])
def test_temporary_files_want_a_folder(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert measure.parser(None).parse_args(["--work", str(tmp_path)]).work == tmp_path
    with pytest.raises(SystemExit) as ended:
        measure.parser(None).parse_args(["--work", str(tmp_path / value)])
    assert ended.value.code == 2
    assert f"argument --work: {tmp_path / value} is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("warm_up", [0, 20, 21])
def test_some_updates_are_left_after_the_warm_up(warm_up: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        train.main(["--source", "a", "--target", "b", "--updates", "20", "--warm-up", str(warm_up)])
    assert ended.value.code == 2
    assert f"--warm-up: {warm_up}; must be at least 1 and below --updates (20)" in capsys.readouterr().err
