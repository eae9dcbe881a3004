"""The initialisation of the original Transformer's weights."""

from typing import TYPE_CHECKING

from typing_extensions import override

from configs.components import component
from model.parts import Initialisation

if TYPE_CHECKING:
    from torch import nn


@component("initialisation", "xavier")
class Xavier(Initialisation):
    """Xavier-uniform matrices (Glorot and Bengio, 2010), zero biases, embeddings of unit length in expectation."""

    @override
    def fill(self, model: "nn.Module", width: int) -> None:
        from torch import nn

        from model.loss import OutputLayer

        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, (nn.Embedding, OutputLayer)):
                nn.init.normal_(module.weight, std=width**-0.5)
