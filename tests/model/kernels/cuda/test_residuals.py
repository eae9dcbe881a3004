"""Residual, dropout and norm as one operator: Triton under its interpreter, gradients, and what is counted."""

from pathlib import Path
from typing import Any

import pytest
import torch

from model.kernels import use_kernels
from model.loss import CrossEntropy
from model.transformer import Objective
from tests.device.pseudo import DEVICE, metered
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted
from tests.model.kernels.cuda.batches import lane
from tests.model.reference import tiny_model, tiny_section
from trainer.engines.layouts import stage

CASES: list[interpreted.Sizes] = [
    (5, 12, "float32", 0.3, True, True, False),
    (300, 32, "float32", 0.0, True, False, False),
    (7, 37, "float32", 0.5, False, True, True),
    (3, 512, "bfloat16", 0.1, True, True, True),
    (4, 100, "bfloat16", 0.0, False, False, False),
    (2, 64, "float16", 0.1, True, True, False),
]


@interpreted.needed
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path) -> None:
    [found] = interpreter.ranks(1, interpreted.residuals, CASES, cwd=tmp_path, meet=False)
    for case, row in zip(CASES, found, strict=True):
        assert max(row.values()) <= (1e-5 if case[2] == "float32" else 2e-2), (case, row)


def test_a_module_with_hooks_is_called() -> None:
    """ZeRO-3 gathers parameters then."""
    layer: Any = tiny_model(tiny_section(residual="post")).encoder.layers[0]
    use_kernels(layer, torch.device("cpu"), "cuda")
    x = torch.randn(2, 3, layer.feed_forward.outer.weight.shape[0])
    expected = layer(x, None)
    called: list[str] = []
    layer.feed_forward_residual.norm.register_forward_pre_hook(lambda *_: called.append("norm"))
    layer.self_attention.output.register_forward_pre_hook(lambda *_: called.append("output"))
    torch.testing.assert_close(layer(x, None), expected)
    assert called == ["output", "norm"]


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_all_norms_of_a_pre_norm_model_but_the_first_are_joined(is_checkpointed: bool) -> None:
    """With the residual before them, that of another layer too; not where layers are recomputed one by one."""
    section = tiny_section(residual="pre", activation_checkpointing=is_checkpointed)
    objective = Objective(tiny_model(section), CrossEntropy(0.0)).train()
    use_kernels(objective, DEVICE, "cuda")
    objective.to(DEVICE)
    batch = stage([lane(0, rows=3)], [1], DEVICE, kind="flash")()
    with metered() as meter:
        objective(batch.source, batch.target_input, batch.target_output, batch.layout)
    found = meter.by_operator()
    assert found["zeromt::residual_norm"] == (6 if is_checkpointed else 10)
    assert found["native_layer_norm"] == (6 if is_checkpointed else 2)


def test_programs_of_the_backward_kernel_fill_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = pytest.importorskip("model.kernels.cuda.triton_kernels.residual_norm_backward")
    monkeypatch.setattr(backward, "_multiprocessors", lambda _: 132)
    found = {width: backward.num_programs(65_536, width, DEVICE) for width in (64, 512, 1024, 4096, 10_000)}
    assert found == {64: 16 * 132, 512: 8 * 132, 1024: 4 * 132, 4096: 132, 10_000: 132}
    assert [backward.num_programs(rows, 512, DEVICE) for rows in (0, 1, 8, 9, 800)] == [1, 1, 1, 2, 100]
