"""A GPU takes other paths (fused attention, padding rows kept in the loss); they must say what the CPU says."""

from typing import Any

import pytest
import torch

from configs import SearchSection
from model import Objective, search
from tests.model.reference import BOS, EOS, pad, tiny_model, tiny_section

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

SOURCES = pad([[5, 9, 3, 12, 7, EOS], [4, EOS], [11, 3, 3, EOS]])
TARGETS = pad([[6, 5, EOS], [10, 4, 8, 12, EOS], [EOS]])
TARGET_INPUTS = pad([[BOS, 6, 5], [BOS, 10, 4, 8, 12], [BOS]])


OPTIONS: list[dict[str, Any]] = [
    {},
    {"positions": "rotary", "head_width": 6, "num_heads": 4, "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"},
    {"attention_scale": "model_width", "norm": "scalar", "output_bias": True, "activation_checkpointing": True},
]


@pytest.mark.parametrize("option", OPTIONS)
def test_sums_and_gradients(option: dict[str, Any]) -> None:
    objectives = [Objective(tiny_model(tiny_section(**option)), label_smoothing=0.1).to(d) for d in ("cpu", "cuda")]
    outs = [
        objective(*(x.to(device) for x in (SOURCES, TARGET_INPUTS, TARGETS)))
        for objective, device in zip(objectives, ("cpu", "cuda"), strict=True)
    ]
    for out in outs:
        out.loss_sum.backward()
    for cpu, gpu in zip(*outs, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-5, atol=1e-5)
    for cpu, gpu in zip(*(objective.parameters() for objective in objectives), strict=True):
        torch.testing.assert_close(gpu.grad.cpu(), cpu.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_search(beam: int) -> None:
    model = tiny_model(tiny_section())
    section = SearchSection(beam=beam, max_length_extra=3)
    cpu = search(model, SOURCES, section, n_best=beam)
    gpu = search(model.to("cuda"), SOURCES.to("cuda"), section, n_best=beam)
    for one, other in zip(cpu, gpu, strict=True):
        assert [h.ids for h in other] == [h.ids for h in one]
        assert [h.score for h in other] == pytest.approx([h.score for h in one], abs=1e-4)
