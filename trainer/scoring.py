"""Corpus BLEU and chrF by sacreBLEU (Post, 2018), each with its signature."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from configs import UserError

TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", "zho": "zh", "jpn": "ja-mecab", "kor": "ko-mecab"}


@dataclass(kw_only=True, slots=True, frozen=True)
class Scores:
    """Corpus scores from 0 to 100."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def bleu_tokenizer(setting: str, target_language: str) -> str:
    """sacreBLEU's tokeniser: as set, or for `auto` the one that suits the target language."""
    if setting != "auto":
        return setting
    return TOKENIZERS.get(target_language.replace("_", "-").split("-")[0].lower(), "13a")


class Scorer:
    """Scores translations, cased and detokenised.

    Raises:
        UserError: the tokeniser needs a package that is not installed.
    """

    def __init__(self, tokenizer: str) -> None:
        try:
            self._bleu = BLEU(tokenize=tokenizer)
        except (RuntimeError, ImportError, ValueError) as error:
            raise UserError(
                f"evaluation.tokenizer: {tokenizer!r} cannot be used: {' '.join(str(error).split())[:200]}"
            ) from error
        self._chrf = CHRF()

    def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
        """Corpus scores.

        Raises:
            UserError: the counts differ, or there is nothing to score.
        """
        if len(hypotheses) != len(references):
            raise UserError(
                f"evaluation: {len(hypotheses)} translations beside {len(references)} references; "
                "allowed is the same number"
            )
        if not references:
            raise UserError("evaluation: no sentences; allowed is at least one")
        bleu = self._bleu.corpus_score(hypotheses, [references])
        chrf = self._chrf.corpus_score(hypotheses, [references])
        return Scores(
            bleu=bleu.score,
            bleu_signature=str(self._bleu.get_signature()),
            chrf=chrf.score,
            chrf_signature=str(self._chrf.get_signature()),
        )
