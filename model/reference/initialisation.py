"""Initial weights of the reference systems."""

import math

from torch import nn

from model.loss import OutputLayer
from model.positions import LearnedPositions


def as_torch(model: nn.Module, width: int) -> None:
    """What torch's own linear layers and embeddings begin with: uniform within 1 / sqrt(inputs), and normal."""
    for module in model.modules():
        if isinstance(module, OutputLayer):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width))
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.weight)


def xavier_matrices(model: nn.Module, width: int) -> None:
    """Every matrix Xavier-uniform (Glorot and Bengio, 2010), embeddings and output too; biases as torch has them."""
    as_torch(model, width)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
