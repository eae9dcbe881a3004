"""Subword regularisation: words are cut into other pieces each time that they are read."""

from typing import Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import SubwordModifier, component
from configs.components.data import Chance


@component("modifier", "bpe_dropout")
class BpeDropout(SubwordModifier):
    """BPE-dropout (Provilkov et al., 2020, algorithm 1): at each step of a word's merging each possible merge is
    dropped with a probability. Unlike theirs, a word has 64 segmentations a run, of which one is drawn each time."""

    model_type: ClassVar[str] = "bpe"
    dropout: Chance = 0.1
    """p; 0 gives the plain pieces, 1 characters."""

    @override
    def build(self, vocabulary: Any) -> Any:
        from data_pipeline.stream.augmentation.bpe import BpeSegmenter  # numpy

        return BpeSegmenter(vocabulary, self.dropout)


@component("modifier", "unigram_sampling")
class UnigramSampling(SubwordModifier):
    """Unigram sampling (Kudo, 2018): a segmentation x of a word with a probability in proportion to P(x) ** alpha, over
    all segmentations (l is infinite). A word has 64 a run, of which one is drawn each time."""

    model_type: ClassVar[str] = "unigram"
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.2
    """0 gives all segmentations alike, a large one the plain pieces."""

    @override
    def build(self, vocabulary: Any) -> Any:
        from data_pipeline.stream.augmentation.unigram import UnigramSegmenter  # numpy

        return UnigramSegmenter(vocabulary, self.alpha)
