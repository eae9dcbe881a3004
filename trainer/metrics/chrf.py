"""chrF and chrF++."""

from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import Metric, ScoredText, Scoring, component


@component("metric", "chrf")
class ChrF(Metric):
    """chrF (Popovic, 2015); with `word_order: 2`, chrF++ (Popovic, 2017), whose figures are named chrfpp."""

    title: ClassVar[str] = "chrF"
    char_order: Annotated[int, Field(ge=1, le=64)] = 6
    """Maximum length of character n-grams."""
    word_order: Annotated[int, Field(ge=0, le=8)] = 0
    """Maximum length of word n-grams; 2 is chrF++."""
    beta: Annotated[int, Field(ge=1, le=64)] = 2
    """Weight of recall over precision."""
    lowercase: bool = False
    """Ignore case."""

    @override
    def key(self) -> str:
        # some trackers do not allow a plus sign in a name
        return self.name or "chrf" + "p" * self.word_order

    @override
    def label(self) -> str:
        return self.name or "chrF" + "+" * self.word_order

    @override
    def build(self, text: ScoredText) -> Scoring:
        from sacrebleu.metrics.chrf import CHRF

        return CHRF(char_order=self.char_order, word_order=self.word_order, beta=self.beta, lowercase=self.lowercase)
