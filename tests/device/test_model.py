"""A GPU takes other paths (fused attention, padding rows kept in the loss); they must say what the CPU says.

On the pseudo device everywhere, on a GPU where there is one.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import ModelSection
from model import Objective
from model.loss import CrossEntropy
from tests.device.pseudo import DEVICE
from tests.model.reference import SOURCES, TARGET_INPUTS, TARGETS, pad, tiny_model, tiny_section
from tests.model.variants import MODELS

GPU = pytest.param(
    torch.device("cuda"),
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")],
    id="cuda",
)


def trained(section: ModelSection, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Sums and gradients of a micro-batch, back on the CPU."""
    objective = Objective(tiny_model(section), CrossEntropy(0.1)).to(device)
    out = objective(*(pad(rows).to(device) for rows in (SOURCES, TARGET_INPUTS, TARGETS)))
    out.loss_sum.backward()
    grads = [p.grad for p in objective.parameters()]
    return [x.detach().cpu() for x in out], [g.cpu() for g in grads if g is not None]


@pytest.mark.parametrize("device", [pytest.param(DEVICE, id="pseudo"), GPU])
@pytest.mark.parametrize("option", MODELS, ids=range(len(MODELS)))
def test_sums_and_gradients(device: torch.device, option: dict[str, Any]) -> None:
    section = tiny_section(**option)
    outs, grads = trained(section, device)
    cpu_outs, cpu_grads = trained(section, torch.device("cpu"))
    assert len(grads) == len(list(tiny_model(section).parameters()))
    torch.testing.assert_close(outs, cpu_outs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grads, cpu_grads, rtol=1e-3, atol=1e-4)
