"""Initialisation of a new model's weights. Norms and positions are initialised by their own modules."""

from torch import nn

from model.loss import OutputLayer


def xavier(model: nn.Module, width: int) -> None:
    """Xavier-uniform matrices (Glorot and Bengio, 2010), zero biases, embeddings of unit length in expectation."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.Embedding, OutputLayer)):
            nn.init.normal_(module.weight, std=width**-0.5)
