"""A start that is refused leaves no folder of a run that never began."""

from pathlib import Path

import pytest

from tests.forked import Forked
from tests.trainer.conftest import place

__all__ = ["place"]


@pytest.mark.parametrize("command", ["train", "launch local --nproc 2"])
def test_a_new_run_that_is_refused_leaves_nothing(command: str, place: Path, forked: Forked) -> None:
    done = forked.zeromt(*command.split(), "small.yaml", "name=new", "stream.source_tokens=1", cwd=place)
    assert done.code == 2, done.err
    assert "stream.source_tokens: pair " in done.err
    assert not (place / "runs" / "new").exists()


def test_a_folder_that_was_there_stays(place: Path, forked: Forked) -> None:
    own = place / "runs" / "new" / "plugins" / "mine.py"
    own.parent.mkdir(parents=True)
    own.touch()
    assert forked.zeromt("train", "small.yaml", "name=new", "stream.source_tokens=1", cwd=place).code == 2
    assert own.exists()
