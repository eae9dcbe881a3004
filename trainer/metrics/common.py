"""BLEU, chrF and TER by sacreBLEU (Post, 2018), and which of its tokenizers suits a language."""

from typing import TYPE_CHECKING, Annotated, ClassVar, get_args

from pydantic import Field
from typing_extensions import override

from configs.components import Metric, ScoredText, Scoring, component, unknown
from configs.errors import UserError
from configs.evaluation import BleuTokenizer
from configs.languages import language

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

_BY_SCRIPT = {
    "zh": ("Hans", "Hant", "Hani", "Hanb"),
    "ja-mecab": ("Jpan", "Hrkt", "Hira", "Kana"),
    "ko-mecab": ("Kore", "Hang"),
    "char": ("Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Java", "Bali", "Cham", "Bugi", "Batk", "Lana", "Talu", "Tale"),
}
"""sacreBLEU's tokenizers and the scripts (ISO 15924) for which they are chosen; "char" for those without spaces."""


@component("metric", "bleu")
class Bleu(Metric):
    """BLEU (Papineni et al., 2002)."""

    title: ClassVar[str] = "BLEU"
    tokenizer: BleuTokenizer | None = None
    """One of sacreBLEU's tokenizers; default: `evaluation.tokenizer`."""
    lowercase: bool = False
    """Ignore case."""

    @override
    def build(self, text: ScoredText) -> Scoring:
        return bleu(text, self.tokenizer, lowercase=self.lowercase)


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


def choose(setting: str, target_language: str) -> str:
    """The name of sacreBLEU's tokenizer; `auto` chooses by the script of the target language."""
    if setting != "auto":
        return setting
    script = language(target_language).script
    return next((name for name, scripts in _BY_SCRIPT.items() if script in scripts), "13a")


def bleu(text: ScoredText, tokenizer: str | None = None, *, lowercase: bool = False) -> "BLEU":
    """sacreBLEU's BLEU, with the tokenizer of the text or another.

    Raises:
        UserError: there is no such tokenizer, or it needs a package or file that is missing.
    """
    from sacrebleu.metrics.bleu import BLEU

    option = text.tokenizer_option if tokenizer is None else "evaluation.metrics: tokenizer"
    name = choose(tokenizer or text.tokenizer, text.target_language)
    if name not in (names := get_args(BleuTokenizer)):
        raise UserError(f"{option}: {unknown(name, dict.fromkeys(names), what='tokenizer of sacreBLEU')}")
    try:
        return BLEU(tokenize=name, lowercase=lowercase)
    except (RuntimeError, ImportError, ValueError, OSError, SystemExit) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(f"{option}: {name!r} cannot be used: {said}; or choose char") from error
