"""Attention of short rows: Triton under its interpreter and the plain twin against fp64, and what dropout goes by."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.kernels.cuda.short_attention import ShortAttention
from tests.device.pseudo import DEVICE, metered
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted

OFF = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
SAMPLE: list[interpreted.Rows] = [
    ([1, 7, 0, 27], [1, 7, 0, 27], 1, 32, "float32", 0.3, True),
    ([7, 0, 3, 64], [27, 5, 0, 1], 2, 64, "float16", 0.3, False),
    ([33, 7], [33, 7], 1, 128, "bfloat16", 0.0, True),
    ([5, 18], [34, 1], 2, 12, "float32", 0.0, False),
    ([0, 140], [0, 140], 1, 32, "float16", 0.3, True),
]
"""The last but one has heads that no power of two is as wide as; the last a row that is not short."""
LONG: list[interpreted.Rows] = [
    ([1, 7, 0, 27, 64, 128], [128, 64, 27, 0, 7, 1], 1, width, precision, p, False)
    for width, precision, p in ((32, "float32", 0.3), (64, "float16", 0.0), (128, "bfloat16", 0.3))
]


@interpreted.needed
@pytest.mark.parametrize("cases", [SAMPLE, pytest.param(LONG, marks=pytest.mark.slow)], ids=["sample", "long"])
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path, cases: list[interpreted.Rows]) -> None:
    [found] = interpreter.ranks(1, interpreted.attentions, cases, cwd=tmp_path, meet=False)
    for case, row in zip(cases, found, strict=True):
        assert max(row.values()) <= OFF[case[4]], (case, row)


def rows(lengths: list[int], device: torch.device) -> tuple[list[Tensor], list[Any]]:
    """Query, key and value of rows, and what goes with them: self-attention with dropout."""
    generator = torch.Generator().manual_seed(1)
    tensors = list(torch.randn(3, sum(lengths), 2, 8, generator=generator).to(device))
    places = [torch.tensor([5, 6, pair, position]) for pair, n in enumerate(lengths) for position in range(n)]
    bounds = torch.tensor([0, *lengths]).cumsum(0).int().to(device)
    return tensors, [bounds, bounds, torch.stack(places).int().to(device), 3, 0.4, True, 0.5]


def test_one_kernel_forward_and_one_backward() -> None:
    found = []
    for device in (torch.device("cpu"), DEVICE):
        tensors, rest = rows([9, 3, 12], device)
        leaves = [x.requires_grad_() for x in tensors]
        with metered() as meter:
            out: Tensor = ShortAttention.apply(*leaves, *rest)  # type: ignore[no-untyped-call]
            torch.autograd.backward(out, torch.ones_like(out))
        found.append([x.detach().cpu() for x in (out, *(leaf.grad for leaf in leaves)) if x is not None])
    assert meter.num_kernels == 2 + 1, meter.by_operator()
    assert not meter.waits
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_goes_by_where_a_weight_stands() -> None:
    """Not by the rows beside it: a row alone drops the same weights; heads and layers drop others."""
    (_, _, value), rest = rows([9, 3, 12], torch.device("cpu"))
    flat = torch.zeros_like(value)  # all weights of a position are equal
    whole = torch.ops.zeromt.short_attention(flat, flat, value, *rest)[0]
    alone = [torch.tensor([0, 12], dtype=torch.int32)] * 2
    args = flat[12:], flat[12:], value[12:], *alone, rest[2][12:]
    assert torch.equal(torch.ops.zeromt.short_attention(*args, *rest[3:])[0], whole[12:])
    other_layer = torch.ops.zeromt.short_attention(*args, 4, *rest[4:])[0]
    assert not torch.equal(other_layer, whole[12:])
    same = value[:, :1].expand(-1, 2, -1)
    by_head = torch.ops.zeromt.short_attention(flat, flat, same, *rest)[0]
    assert not torch.equal(by_head[:, 0], by_head[:, 1])
