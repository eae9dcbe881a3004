"""AdamW against torch's own, and that it does not start torch's compiler."""

import copy

import pytest
import torch

from tests.conftest import ask_python
from trainer.engines.adamw import AdamW


def steps_of(
    kind: type[torch.optim.AdamW], *, count: int, fused: bool
) -> tuple[list[torch.nn.Parameter], dict[str, object]]:
    """Weights and state after updates of two groups, half of them by an optimizer that took over the state."""
    draw = torch.Generator().manual_seed(1)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((7, 5), (5,))]
    groups = [{"params": [weights[0]], "weight_decay": 0.1}, {"params": [weights[1]], "weight_decay": 0.0}]
    optimizer = kind(copy.copy(groups), lr=1e-2, betas=(0.9, 0.98), fused=fused)
    hooked = []
    for step in range(count):
        if step == count // 2:
            state = optimizer.state_dict()
            optimizer = kind(copy.copy(groups), lr=1.0, fused=fused)
            optimizer.load_state_dict(state)
            optimizer.register_step_post_hook(lambda *_: hooked.append(1))
        sum((weight * torch.randn(weight.shape, generator=draw)).square().sum() for weight in weights).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad()
        assert all(weight.grad is None for weight in weights)
    assert len(hooked) == count - count // 2
    return weights, optimizer.state_dict()


@pytest.mark.parametrize("fused", [False, True])
def test_is_torchs_adamw(fused: bool) -> None:
    ours, our_state = steps_of(AdamW, count=6, fused=fused)
    theirs, their_state = steps_of(torch.optim.AdamW, count=6, fused=fused)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert str(our_state) == str(their_state)


def test_is_torchs_adamw_whoever_was_made_first() -> None:
    """torch hooks the class of the first instance: ours must not inherit that."""
    code = """
import sys, torch
from trainer.engines.adamw import AdamW
if sys.argv[1] == "theirs":
    torch.optim.AdamW([torch.zeros(2, requires_grad=True)])
weight = torch.ones(2, requires_grad=True)
optimizer, calls = AdamW([weight], lr=0.5), []
optimizer.register_step_pre_hook(lambda *_: calls.append(1))
weight.square().sum().backward()
optimizer.step()
optimizer.state_dict()
answer = [calls, float(weight[0]) < 1, "torch._dynamo" in sys.modules]
"""
    assert ask_python(code, "ours") == [[1], True, False]
    assert ask_python(code, "theirs") == [[1], True, True]
