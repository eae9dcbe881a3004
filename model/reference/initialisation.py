"""Initial weights of the reference systems."""

import math

from torch import nn

from model.loss import OutputLayer
from model.positions import LearnedPositions


def torch_defaults(model: nn.Module, width: int) -> None:
    """torch's defaults: linear layers uniform within 1 / sqrt(inputs), embeddings standard normal."""
    for module in model.modules():
        if isinstance(module, OutputLayer):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width))
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.weight)


def xavier_matrices(model: nn.Module, width: int) -> None:
    """All matrices Xavier-uniform (Glorot and Bengio, 2010), embeddings and output included; biases as in torch."""
    torch_defaults(model, width)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
