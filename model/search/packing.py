"""Linear layers whose weights oneDNN has laid out for its own kernels, while a model decodes on a CPU."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from model.linear import has_onednn
from model.loss import OutputLayer
from model.search.ensemble import Ensemble


@contextlib.contextmanager
def packed(ensemble: Ensemble) -> Iterator[None]:
    """Within it, the models' layers on a CPU multiply by packed copies of their weights, which must not change.

    oneDNN lays the weights out anew for every product unless they are packed. In fp32 this also takes products of any
    size to it, summed in another order (see `model.linear` for why it is quicker). In bf16 the bits stay the same.
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
    if not has_onednn():
        return []
    dtypes = [torch.float32]
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        dtypes.append(torch.bfloat16)
    found = [layer for layer in model.modules() if isinstance(layer, nn.Linear | OutputLayer)]
    return [x for x in found if x.weight.device.type == "cpu" and x.weight.dtype in dtypes]


@torch.inference_mode()
def _forward(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """What `nn.Linear.forward` does, by the operators that torch's own compiler uses."""
    multiply = torch.ops.mkldnn._linear_pointwise
    packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight)

    def forward(x: Tensor) -> Tensor:
        out: Tensor = multiply(x, packed_weight, bias, "none", [], "")
        return out

    return forward
