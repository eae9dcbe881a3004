"""The initialisation of the original Transformer's weights."""

from typing import TYPE_CHECKING

from typing_extensions import override

from configs.components import component
from configs.components.model import Initialisation

if TYPE_CHECKING:
    from torch import nn


@component("initialisation", "xavier")
class Xavier(Initialisation):
    """Xavier-uniform matrices (Glorot and Bengio, 2010), zero biases, embeddings of unit length in expectation."""

    @override
    def fill(self, model: "nn.Module", width: int) -> None:
        from model.initialisation import xavier

        xavier(model, width)
