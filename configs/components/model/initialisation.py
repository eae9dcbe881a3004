"""The base class of initialisations, which draw a new model's weights."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Initialisation(Component):
    """Initialises a new model's weights. Norms and positions are initialised by their own modules."""

    def fill(self, model: Any, width: int) -> None:
        """Draw the weights of a model. Its linear layers and embeddings still have torch's initial values.

        Args:
            model: the model, complete except that matrices to be tied are still separate.
            width: width of the model.
        """
        raise NotImplementedError
