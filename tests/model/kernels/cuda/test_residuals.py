"""Residual, dropout and norm as one operator: who is asked, and what is counted."""

from typing import Any

import pytest
import torch

from model.kernels import use_kernels
from model.loss import CrossEntropy
from model.transformer import Objective
from tests.device.pseudo import DEVICE, metered
from tests.model.kernels.cuda.batches import lane
from tests.model.reference import tiny_model, tiny_section
from trainer.engines.layouts import stage


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
        objective(*batch.arguments())
    counts = meter.kernels_by("operator")
    assert counts["zeromt::residual_norm"] == (6 if is_checkpointed else 10)
    assert counts["native_layer_norm"] == (6 if is_checkpointed else 2)
