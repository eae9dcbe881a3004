"""ZeRO-3 gathers parameters when a module is called: kernels that reach into modules must leave those alone."""

from pathlib import Path

import pytest

from tests.forked import Forked
from tests.trainer.engines.fused_kernels import train_with_kernels


def test_stages_agree(forked: Forked, tmp_path: Path) -> None:
    for by_stage in forked.ranks(2, train_with_kernels, [0, 3], cwd=tmp_path):
        for found in by_stage[1:]:
            assert found == pytest.approx(by_stage[0], rel=1e-5)
