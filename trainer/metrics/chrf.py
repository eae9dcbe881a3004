"""chrF and chrF++."""

from typing import Annotated, ClassVar

from pydantic import Field

from configs.components import Metric, ScoredText, Scoring, component


@component("metric", "chrf")
class ChrF(Metric):
    """chrF (Popovic, 2015); with `word_order: 2`, chrF++ (Popovic, 2017), whose figures are called chrfpp."""

    title: ClassVar[str] = "chrF"
    char_order: Annotated[int, Field(ge=1, le=64)] = 6
    """Longest n-grams of characters."""
    word_order: Annotated[int, Field(ge=0, le=8)] = 0
    """Longest n-grams of words; 2 is chrF++."""
    beta: Annotated[int, Field(ge=1, le=64)] = 2
    """Weight of recall over precision."""
    lowercase: bool = False
    """Score blind to case."""

    def key(self) -> str:
        """See Metric. A plus sign is no letter of a name to all places that figures go to."""
        return self.name or "chrf" + "p" * self.word_order

    def label(self) -> str:
        """See Metric."""
        return self.name or "chrF" + "+" * self.word_order

    def build(self, text: ScoredText) -> Scoring:
        """See Metric."""
        from sacrebleu.metrics.chrf import CHRF

        return CHRF(char_order=self.char_order, word_order=self.word_order, beta=self.beta, lowercase=self.lowercase)
