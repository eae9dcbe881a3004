"""The base classes of a model's parts. A part states its costs and limits, and builds its module. Imports no torch."""

from configs.components.model.attention import Attention
from configs.components.model.costs import FLOAT, LossBytes, NamedShape, Storage, linear
from configs.components.model.feed_forward import FeedForward
from configs.components.model.initialisation import Initialisation
from configs.components.model.loss import Loss
from configs.components.model.norm import Norm
from configs.components.model.part import ModelPart, UndeclaredError
from configs.components.model.positions import Positions
from configs.components.model.residual import Residual

__all__ = [
    "FLOAT",
    "Attention",
    "FeedForward",
    "Initialisation",
    "Loss",
    "LossBytes",
    "ModelPart",
    "NamedShape",
    "Norm",
    "Positions",
    "Residual",
    "Storage",
    "UndeclaredError",
    "linear",
]
