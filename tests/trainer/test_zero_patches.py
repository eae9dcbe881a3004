from pathlib import Path

from tests.conftest import Command, ranks


def test_gathering_by_broadcasts(tmp_path: Path) -> None:
    done = Command(ranks(3, "tests.trainer.gathers"), cwd=tmp_path).finish(120)
    assert done.code == 0, done.err[-3000:]
    assert {"0 16", "1 8", "2 16"} <= set(done.out.splitlines()), "compared by each rank"
