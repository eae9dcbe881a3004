"""A GPU takes other paths (fused attention, padding rows kept in the loss); they must say what the CPU says.

On the pseudo device everywhere, on a GPU where there is one.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from configs import SearchSection
from model import Objective, Transformer
from model.loss import CrossEntropy
from model.search import search
from tests.device.pseudo import DEVICE
from tests.model.reference import BOS, EOS, pad, tiny_model, tiny_section
from tests.model.variants import MODELS

GPU = pytest.param(
    torch.device("cuda"),
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")],
    id="cuda",
)
each_device = pytest.mark.parametrize("device", [pytest.param(DEVICE, id="pseudo"), GPU])
each_model = pytest.mark.parametrize("option", MODELS, ids=range(len(MODELS)))

SOURCES = pad([[5, 9, 3, 12, 7, EOS], [4, EOS], [11, 3, 3, EOS]])
TARGETS = pad([[6, 5, EOS], [10, 4, 8, 12, EOS], [EOS]])
TARGET_INPUTS = pad([[BOS, 6, 5], [BOS, 10, 4, 8, 12], [BOS]])
DROPOUTS = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}


def trained(model: Transformer, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Sums and gradients of a micro-batch, back on the CPU."""
    objective = Objective(model, CrossEntropy(0.1)).to(device)
    out = objective(*(x.to(device) for x in (SOURCES, TARGET_INPUTS, TARGETS)))
    out.loss_sum.backward()
    grads = [p.grad for p in objective.parameters()]
    return [x.detach().cpu() for x in out], [g.cpu() for g in grads if g is not None]


@each_device
@each_model
def test_sums_and_gradients(device: torch.device, option: dict[str, Any]) -> None:
    section = tiny_section(**option)
    outs, grads = trained(tiny_model(section), device)
    cpu_outs, cpu_grads = trained(tiny_model(section), torch.device("cpu"))
    assert len(grads) == len(cpu_grads) == len(list(tiny_model(section).parameters()))
    for mine, cpu in zip(outs, cpu_outs, strict=True):
        torch.testing.assert_close(mine, cpu, rtol=1e-5, atol=1e-5)
    for mine, cpu in zip(grads, cpu_grads, strict=True):
        torch.testing.assert_close(mine, cpu, rtol=1e-3, atol=1e-4)


@each_device
@pytest.mark.parametrize("option", MODELS[:3], ids=range(3))
def test_checkpointing_draws_the_same_masks_again(device: torch.device, option: dict[str, Any]) -> None:
    found = []
    for is_on in (False, True):
        section = tiny_section(**{**option, **DROPOUTS, "activation_checkpointing": is_on})
        torch.get_device_module(device).manual_seed(4)
        outs, grads = trained(tiny_model(section).train(), device)
        found.append(outs + grads)
    for plain, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(recomputed, plain, rtol=1e-6, atol=1e-6)


@each_device
def test_dropout_is_drawn_on_the_device(device: torch.device) -> None:
    """By the seed that it was given there, and by no other."""
    found = []
    for seed, on_cpu in ((1, 1), (1, 2), (2, 1)):
        torch.manual_seed(on_cpu)
        torch.get_device_module(device).manual_seed(seed)
        found.append(trained(tiny_model(tiny_section(**DROPOUTS)).train(), device)[0][0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@each_device
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("option", MODELS[:6], ids=range(6))
def test_search(device: torch.device, beam: int, option: dict[str, Any]) -> None:
    model = tiny_model(tiny_section(**option))
    section = SearchSection(beam=beam, max_length_extra=3)
    cpu = search(model, SOURCES, section, n_best=beam)
    found = search(model.to(device), SOURCES.to(device), section, n_best=beam)
    for one, other in zip(cpu, found, strict=True):
        assert [h.ids for h in other] == [h.ids for h in one]
        assert [h.score for h in other] == pytest.approx([h.score for h in one], abs=1e-4)
