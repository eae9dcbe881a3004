"""What is changed in DeepSpeed, and that it still has what the changes hold on to."""

from pathlib import Path
from typing import Any

import pytest
from deepspeed.comm.torch import TorchBackend
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

from tests.conftest import Command, ranks
from trainer.engines.deepspeed.patches import PATCHES, Patch


def test_gathering_by_broadcasts(tmp_path: Path) -> None:
    done = Command(ranks(3, "tests.trainer.engines.gathers"), cwd=tmp_path).finish(120)
    assert done.code == 0, done.err[-3000:]
    assert {"0 16", "1 8", "2 16"} <= set(done.out.splitlines()), "compared by each rank"


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.target)
def test_has_something_to_hold_on_to(patch: Patch) -> None:
    """Private names of DeepSpeed and torch; those that are reached at the first NaN alone, too."""
    patch.probe()
    assert patch.versions
    assert patch.reason


@pytest.mark.parametrize(
    ("owner", "name", "target"),
    [
        (FP16_UnfusedOptimizer, "_skip_invalid_grad_norm", "FP16_UnfusedOptimizer"),
        (DeepSpeedZeroOptimizer, "_lazy_init_hp_params_optimizer_state", "_hp_optimizer_states_linked"),
        (TorchBackend, "_reduce_op", "comm.cdb"),
    ],
)
def test_a_probe_notices_what_is_gone(owner: Any, name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    concerned = [patch for patch in PATCHES if target in patch.target]
    assert concerned
    monkeypatch.delattr(owner, name)
    for patch in concerned:
        with pytest.raises(AttributeError, match=name):
            patch.probe()
