"""CPU kernels: oneDNN where it is faster than MKL, joined matmuls, cheap dropout, and a loss that fits the cache."""

from torch import nn

from model.attention import MultiHeadAttention
from model.dropout import Dropout
from model.feed_forward import FeedForward
from model.kernels.cpu.decoding import STEPS_BETWEEN_SYNCS, argmax, packed_weights
from model.kernels.cpu.layers import CpuAttention, CpuDropout, CpuFeedForward
from model.kernels.cpu.linear import CpuLinear, bf16_is_faster
from model.kernels.cpu.loss import CpuOutputLayer
from model.loss import OutputLayer

__all__ = ["STEPS_BETWEEN_SYNCS", "argmax", "bf16_is_faster", "packed_weights", "use"]

FASTER: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: CpuLinear,
    Dropout: CpuDropout,
    FeedForward: CpuFeedForward,
    MultiHeadAttention: CpuAttention,
    OutputLayer: CpuOutputLayer,
}


def use(module: nn.Module) -> None:
    """Give a module's parts the classes here, for `model.kernels.use_kernels`. They add no state to the plain ones."""
    for part in module.modules():
        if type(part) in FASTER:
            part.__class__ = FASTER[type(part)]
