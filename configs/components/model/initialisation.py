"""What the weights of a new model are drawn from."""

import dataclasses
from typing import Any

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Initialisation(Component):
    """How a new model's weights begin. Norms and positions begin as their own modules say."""

    def fill(self, model: Any, width: int) -> None:
        """Draw the weights of a model whose linear layers and embeddings are torch's own as yet.

        Args:
            model: whole, but for matrices that are to be shared.
            width: of it.
        """
        raise NotImplementedError
