"""CPU kernels: packed weights for decoding, cheap dropout, fused feed-forward, a loss that fits in the cache."""

from torch import nn

from model.kernels.cpu.training import CPU_STEPS, CpuDropout, CpuFeedForward
from model.loss import OutputLayer
from model.sublayers import Dropout, FeedForward

FASTER: dict[type[nn.Module], type[nn.Module]] = {
    Dropout: CpuDropout,
    FeedForward: CpuFeedForward,
}


def use(module: nn.Module) -> None:
    """Give a module's parts the classes here, for `model.kernels.use_kernels`. They add no state to the plain ones."""
    for part in module.modules():
        if type(part) in FASTER:
            part.__class__ = FASTER[type(part)]
        elif type(part) is OutputLayer:
            part.steps = CPU_STEPS
