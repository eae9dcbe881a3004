"""BLEU."""

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from configs.components import Metric, ScoredText, Scoring, component
from configs.evaluation import BleuTokenizer
from trainer.metrics import tokenizers


@component("metric", "bleu")
class Bleu(Metric):
    """BLEU (Papineni et al., 2002) by sacreBLEU (Post, 2018)."""

    title: ClassVar[str] = "BLEU"
    tokenizer: BleuTokenizer | None = None
    """One of sacreBLEU's tokenizers; default: `evaluation.tokenizer`."""
    lowercase: bool = False
    """Ignore case."""

    @override
    def build(self, text: ScoredText) -> Scoring:
        from sacrebleu.metrics.bleu import BLEU

        option = text.tokenizer_option if self.tokenizer is None else f"evaluation.metrics: {self.key()}: tokenizer"
        name = tokenizers.choose(self.tokenizer or text.tokenizer, text.target_language)

        return tokenizers.checked(lambda: BLEU(tokenize=name, lowercase=self.lowercase), name, option)

    @override
    def doubt(self, scoring: Scoring, references: Sequence[Sequence[str]]) -> str | None:
        name = str(scoring.get_signature().info["tok"])
        return tokenizers.spacing_problem(name, [line for reference in references for line in reference])
