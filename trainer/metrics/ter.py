"""Translation edit rate."""

from typing import ClassVar

from typing_extensions import override

from configs.components import Metric, ScoredText, Scoring, component


@component("metric", "ter")
class Ter(Metric):
    """TER (Snover et al., 2006): edits per 100 words of the reference."""

    title: ClassVar[str] = "TER"
    higher_is_better: ClassVar[bool] = False
    normalized: bool = False
    """Tokenise as Tercom does, which splits punctuation off."""
    no_punct: bool = False
    """Remove punctuation first."""
    asian_support: bool = False
    """Split Chinese and Japanese into characters."""
    case_sensitive: bool = False
    """Distinguish upper and lower case."""

    @override
    def build(self, text: ScoredText) -> Scoring:
        from sacrebleu.metrics.ter import TER

        return TER(
            normalized=self.normalized,
            no_punct=self.no_punct,
            asian_support=self.asian_support,
            case_sensitive=self.case_sensitive,
        )
