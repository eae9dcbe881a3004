"""sacreBLEU's tokenisers: which one suits a language, whether it can be used, and when its scores mean little."""

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from configs.components import Scoring
from configs.errors import UserError
from configs.evaluation import BleuTokenizer
from configs.languages import language

_BY_SCRIPT = {
    "zh": ("Hans", "Hant", "Hani", "Hanb"),
    "ja-mecab": ("Jpan", "Hrkt", "Hira", "Kana"),
    "ko-mecab": ("Kore", "Hang"),
}
"""sacreBLEU's tokenisers and the scripts (ISO 15924) that they are made for."""
_NAMES = [name for name in get_args(BleuTokenizer) if name != "auto"]
_AT_SPACES = frozenset({"13a", "intl", "none"})
"""Tokenisers that split words at spaces and punctuation."""
_UNSPACED = (
    "Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Hani", "Hira", "Kana", "Java", "Bali", "Cham", "Bugi", "Batk",
    "Lana", "Talu", "Tale", "Tavt", "Ahom", "Yiii", "Bopo",
)  # fmt: skip
"""Scripts (ISO 15924) that put no spaces between words, as line breaking knows them (UAX 14: SA, AK, AS, ID)."""
_UNSPACED_CLASS = "".join(rf"\p{{sc={script}}}" for script in _UNSPACED)
_SHOWN_CHARACTERS = 100_000
"""Number of characters of the references from which the script is determined."""
_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


def choose(setting: str, target_language: str) -> str:
    """The name of sacreBLEU's tokeniser; `auto` chooses by the script of the target language."""
    if setting != "auto":
        return setting
    script = language(target_language).script
    return next((name for name, scripts in _BY_SCRIPT.items() if script in scripts), "13a")


def spacing_problem(tokenizer: str, references: Sequence[str]) -> str | None:
    """A warning if references in a script without spaces would be split into words at spaces; else None."""
    import regex

    if tokenizer not in _AT_SPACES:
        return None
    text = "\n".join(references)[:_SHOWN_CHARACTERS]
    unspaced = regex.findall(rf"[[{_UNSPACED_CLASS}]&&\p{{L}}]", text, regex.V1)
    if 2 * len(unspaced) <= len(regex.findall(r"\p{L}", text)):
        return None
    return (
        f"BLEU's tokenizer {tokenizer} takes what stands between spaces for words, and the references are in a script "
        "without spaces: whole clauses count as words and the score says little; choose char, flores200 or spm "
        "(zh for Chinese, ja-mecab for Japanese)"
    )


def checked(build: Callable[[], Scoring], tokenizer: str, option: str) -> Scoring:
    """Build a metric with a tokeniser, after checking that this works.

    Args:
        build: makes sacreBLEU's metric.
        tokenizer: sacreBLEU's.
        option: its name in errors.

    Raises:
        UserError: there is no such tokeniser, or it needs a package or file that is missing.
    """
    if tokenizer not in _NAMES:
        near = difflib.get_close_matches(tokenizer, _NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of auto, {', '.join(_NAMES)}"
        raise UserError(f"{option}: {tokenizer!r} is not a tokenizer of sacreBLEU; {hint}")
    _check_model(tokenizer, option)
    try:
        built = build()
        built.corpus_score(["a"], [["a"]])  # only using a tokeniser shows whether it works
    except (RuntimeError, ImportError, ValueError, OSError, AssertionError) as error:
        raise UserError(f"{option}: {tokenizer!r} cannot be used: {_remedy(tokenizer, error)}") from error
    return built


def describe_models() -> str:
    """One line on which of sacreBLEU's SentencePiece models are present; they are needed only if named."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

    places = {name: _model(name)[1] for name in SPM_MODELS if name in _NAMES}
    here = [name for name, path in places.items() if path.is_file() and path.stat().st_size > 0]
    absent = ", ".join(f"{name} ({path})" for name, path in places.items() if name not in here)
    return f"sacreBLEU's models that are here: {', '.join(here) or 'none'}; absent: {absent or 'none'}"


def _model(tokenizer: str) -> tuple[str, Path]:
    """The URL of a tokeniser's SentencePiece model, and its path here."""
    from sacrebleu import utils
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

    url = SPM_MODELS[tokenizer]["url"]
    return url, Path(utils.SACREBLEU_DIR) / "models" / Path(url).name


def _check_model(tokenizer: str, option: str) -> None:
    """Refuse a tokeniser whose SentencePiece model is missing, as sacreBLEU would download it in the middle of a run.

    Raises:
        UserError: with the model's URL and path.
    """
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

    if tokenizer not in SPM_MODELS:
        return
    url, path = _model(tokenizer)
    try:
        if path.stat().st_size > 0:
            return
        what = "is empty"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    raise UserError(
        f"{option}: {tokenizer!r} needs a model, and {path} {what}; download {url} to that place "
        "(the variable SACREBLEU names another folder than ~/.sacrebleu), or choose char"
    )


def _remedy(tokenizer: str, error: Exception) -> str:
    if package := _PACKAGES.get(tokenizer):
        return f"its package does not work here; install it with `pip install '{package}'`, or choose char or flores200"
    return " ".join(str(error).split())[:200]
