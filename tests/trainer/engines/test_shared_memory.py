"""Collectives through memory that the ranks of one machine share."""

from pathlib import Path

import pytest

from tests.conftest import Command, ranks


@pytest.mark.parametrize("number", [2, 3])
def test_it_does_what_gloo_does(tmp_path: Path, number: int) -> None:
    done = Command(ranks(number, "tests.trainer.engines.shared_memory_ranks"), cwd=tmp_path).finish(120)
    assert done.code == 0, done.err[-3000:]
    assert {f"{rank} 15" for rank in range(number)} <= set(done.out.splitlines()), "compared by each rank"
