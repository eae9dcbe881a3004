"""The default languages of a Transformers checkpoint."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from configs import PrepareSection, UserError
from data_pipeline.tag_pieces import tag_of
from zeromt.importing.generation import Generation
from zeromt.importing.huggingface import Loaded
from zeromt.importing.json_files import TOKENIZER_CONFIG


@dataclass(kw_only=True, slots=True, frozen=True)
class FoundLanguages:
    """The languages that a checkpoint's files name; None if they do not."""

    source: str | None = None
    target: str | None = None

    def notes(self, section: PrepareSection) -> Iterator[str]:
        """Notes on the languages that the run got."""
        if self.source is not None or self.target is not None:
            yield (
                f"languages: {section.source_language} to {section.target_language}; --source-language and "
                "--target-language name others, when importing and when translating"
            )


def find_languages(loaded: Loaded, generation: Generation, settings: Mapping[str, Any]) -> FoundLanguages:
    """The languages of a checkpoint with tags on both sides: the target is the language that is forced, if any is.

    Args:
        loaded: the checkpoint.
        generation: its settings for writing.
        settings: its `tokenizer_config.json`.

    Raises:
        UserError: the forced piece is not a language, or the model has no languages.
    """
    forced, is_tagged = generation.forced_first, loaded.config["model_type"] == "m2m_100"
    if not is_tagged:
        if forced is not None:
            raise UserError(
                f"--huggingface: forced_bos_token_id {forced} of {loaded.config['model_type']}, whose translations "
                "are not forced to begin with anything here; allowed is none"
            )
        return FoundLanguages()
    tokenizer = loaded.vocabularies.tokenizer
    source, target = (_named(settings, side, tokenizer.tags) for side in ("src_lang", "tgt_lang"))
    if forced is None:  # without a target, `src_lang` is only Transformers' default
        return FoundLanguages() if target is None else FoundLanguages(source=source, target=target)
    rows = loaded.vocabularies.target.rows
    piece = tokenizer.target_vocabulary()[rows.index(forced)] if forced in rows else None
    tag = tag_of(piece or "")
    if tag is None or tag not in tokenizer.tags:
        raise UserError(
            f"--huggingface: forced_bos_token_id {forced} is {piece!r}; allowed is one of the languages, or none"
        )
    return FoundLanguages(source=source, target=tag[2:-2])


def _named(settings: Mapping[str, Any], name: str, tags: tuple[str, ...]) -> str | None:
    """A language named in the tokenizer's settings.

    Raises:
        UserError: the tokenizer does not have it.
    """
    language = settings.get(name)
    if language is not None and f">>{language}<<" not in tags:
        raise UserError(f"--huggingface: {TOKENIZER_CONFIG}: {name} {language!r} is none of the tokenizer's languages")
    return language
