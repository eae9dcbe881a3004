import subprocess
import sys
import time

import pytest

from benchmarks import measure

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
@pytest.mark.parametrize("counts_shares", [True, False])
def test_the_whole_tree_is_watched(counts_shares: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    watch = measure.TreeMemory(process.pid, seconds=0.01, counts_shares=counts_shares)
    while watch.peak.num_samples < 3:
        time.sleep(0.01)
    process.communicate(b"\n")
    peak = watch.finish()
    assert process.returncode == 0
    assert peak.num_processes == 2
    for total in (peak.anonymous, peak.proportional, peak.resident, peak.high_water):
        assert 160 * MIB < total < 220 * MIB
    assert 96 * MIB < peak.largest < 130 * MIB


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    measure.print_table("Title", [{"name": "a", "figure": "1"}, {"name": "long", "figure": "12,345"}])
    assert capsys.readouterr().out == "\nTitle\nname  figure\na          1\nlong  12,345\n"
