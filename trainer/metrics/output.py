"""Metrics of common defects of translations: wrong length, untranslated lines, repetition."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from configs.components import Lines, Metric, ScoredText, Scoring, component
from configs.evaluation import BleuTokenizer
from configs.fields import Positive
from trainer.metrics.common import bleu, choose

Words = Callable[[str], list[str]]


@dataclass(slots=True)
class Judging(Scoring):
    """What metrics compute with that judge each line by itself, also beside its source (`Metric.score`)."""

    signature: str
    words: Words = str.split

    def corpus_score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Not available, as it is not given the sources."""
        raise NotImplementedError

    @override
    def get_signature(self) -> str:
        return self.signature


@component("metric", "length_ratio")
class LengthRatio(Metric):
    """Words of the translations over words of the references; of several, the nearest in length, as in BLEU."""

    title: ClassVar[str] = "length ratio"
    higher_is_better: ClassVar[bool | None] = None
    digits: ClassVar[int] = 3
    tokenizer: BleuTokenizer | None = None
    """One of sacreBLEU's tokenizers; default: `evaluation.tokenizer`."""

    @override
    def build(self, text: ScoredText) -> Scoring:
        return bleu(text, self.tokenizer)

    @override
    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        lengths = scoring.corpus_score(hypotheses, references)
        return float(lengths.sys_len) / max(float(lengths.ref_len), 1.0)


@component("metric", "untranslated")
class Untranslated(Metric):
    """Percentage of lines that equal their source, ignoring case and spaces, unless a reference equals it too.

    Lines without letters, such as numbers, are not counted as untranslated.
    """

    title: ClassVar[str] = "untranslated %"
    higher_is_better: ClassVar[bool | None] = False

    @override
    def build(self, text: ScoredText) -> Scoring:
        return Judging("case:lc|space:no")

    @override
    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        count = 0
        for number, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True)):
            text = _plain(hypothesis)
            is_copy = text == _plain(_without_tag(source)) and any(map(str.isalpha, text))
            count += is_copy and all(text != _plain(lines[number]) for lines in references)
        return 100 * count / max(len(hypotheses), 1)


@component("metric", "repeated")
class Repeated(Metric):
    """Percentage of lines that loop, by the count of their commonest n-gram (Raunak et al., 2021).

    A line counts if its commonest n-gram occurs at least `margin` times more often than the source's does there.
    """

    title: ClassVar[str] = "repeated %"
    higher_is_better: ClassVar[bool | None] = False
    order: Positive = 4
    """Length of the n-grams that are counted."""
    margin: Positive = 2
    """A line loops if it repeats this many times more than the source."""

    @override
    def build(self, text: ScoredText) -> Scoring:
        name, tokenizer = choose(text.tokenizer, text.target_language), bleu(text).tokenizer
        return Judging(f"n:{self.order}|margin:{self.margin}|tok:{name}", lambda line: tokenizer(line).split())

    @override
    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        words: Words = scoring.words  # type: ignore[attr-defined]
        count = sum(
            self._most(words(hypothesis)) >= self._most(words(source)) + self.margin
            for source, hypothesis in zip(sources, hypotheses, strict=True)
        )
        return 100 * count / max(len(hypotheses), 1)

    def _most(self, words: list[str]) -> int:
        """How often the commonest n-gram of a line occurs in it."""
        grams = Counter(zip(*(words[i:] for i in range(self.order)), strict=False))
        return max(grams.values(), default=0)


def _plain(line: str) -> str:
    return "".join(line.split()).casefold()


def _without_tag(source: str) -> str:
    """A source line without the tag of the target language before it."""
    return source.partition("<<")[2] if source.startswith(">>") else source
