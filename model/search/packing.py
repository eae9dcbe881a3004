"""Linear layers whose weights oneDNN has laid out for its own kernels, while a model decodes on a CPU."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.linear import rounded_rows, wants_onednn
from model.loss import OutputLayer
from model.search.ensemble import Ensemble

LEAST_STEP = 32
"""Rows in bf16 are a multiple of it: two tiles of AMX, which take hardly longer than one row."""


@contextlib.contextmanager
def packed(ensemble: Ensemble) -> Iterator[None]:
    """Within it, the models' layers on a CPU multiply by packed copies of their weights, which must not change.

    oneDNN lays the weights out anew for every product unless they are packed. In fp32 this also takes products of any
    size to it, summed in another order, where it is quicker (see `model.linear`); on Intel's processors all is left as
    it is. In bf16 the bits stay the same, and rows of zeros make up the next of few numbers: kernels for as many rows
    as sentences are left take longer than the products themselves.
    """
    layers = [layer for model in ensemble.models for layer in _layers(model)]
    for layer in layers:
        vars(layer)["forward"] = _forward(layer.weight.detach(), layer.bias)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _layers(model: nn.Module) -> list[nn.Linear | OutputLayer]:
    dtypes = [dtype for dtype in (torch.float32, torch.bfloat16) if wants_onednn(dtype)]
    found = [layer for layer in model.modules() if isinstance(layer, nn.Linear | OutputLayer)]
    return [x for x in found if x.weight.device.type == "cpu" and x.weight.dtype in dtypes]


@torch.inference_mode()
def _forward(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """What `nn.Linear.forward` does, by the operators that torch's own compiler uses."""
    multiply = torch.ops.mkldnn._linear_pointwise
    packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight)

    def forward(x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            out: Tensor = multiply(x, packed_weight, bias, "none", [], "")
            return out
        x_RI = x.flatten(0, -2)
        num_rows = x_RI.shape[0]
        padded_RI = F.pad(x_RI, (0, 0, 0, rounded_rows(num_rows, least_step=LEAST_STEP) - num_rows))
        out_RO: Tensor = multiply(padded_RI, packed_weight, bias, "none", [], "")
        return out_RO[:num_rows].view(*x.shape[:-1], -1)

    return forward
