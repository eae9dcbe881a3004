"""Subword regularisation: the text is cut into other pieces each time that it is read."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import SubwordModifier, component
from configs.components.data import Chance


@component("modifier", "bpe_dropout")
class BpeDropout(SubwordModifier):
    """BPE-dropout (Provilkov et al., 2020, algorithm 1): at each step of a word's merging each possible merge is
    dropped with a probability."""

    model_type: ClassVar[str] = "bpe"
    dropout: Chance = 0.1
    """p; 0 gives the plain pieces, 1 characters."""

    @override
    def sampling_alpha(self) -> float:
        return self.dropout


@component("modifier", "unigram_sampling")
class UnigramSampling(SubwordModifier):
    """Unigram sampling (Kudo, 2018): a segmentation x of the text with a probability in proportion to P(x) ** alpha,
    over all segmentations (l is infinite)."""

    model_type: ClassVar[str] = "unigram"
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.2
    """0 gives all segmentations alike, a large one the plain pieces."""

    @override
    def sampling_alpha(self) -> float:
        return self.alpha
