"""Language tags on both sides, as in M2M100 and NLLB (Fan et al., 2021; NLLB Team, 2022).

A source begins with the tag of its language, and a translation is forced to begin with the tag of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from configs import UNDETERMINED, PrepareSection, UserError
from data_pipeline.tokenizer import Tokenizer


@dataclass(kw_only=True, slots=True, frozen=True)
class LanguageTags:
    """The pieces with which a source and a translation begin."""

    source: int
    target: int


def language_tags(
    section: PrepareSection, tokenizer: Tokenizer, *, source: str | None = None, target: str | None = None
) -> LanguageTags | None:
    """The tags that a model was trained with; None if it does not have tags on both sides.

    Args:
        section: of the run.
        tokenizer: the run's.
        source, target: languages that replace the section's.

    Raises:
        UserError: a language is unknown, or the model has no language tags.
    """
    if not section.tag_both_sides:
        for side, language in (("source", source), ("target", target)):
            if language is not None:
                raise UserError(
                    f"--{side}-language: {language!r}, and the run has no language tags on both sides "
                    "(prepare.tag_both_sides); allowed there is a tag before each source line, if it has any"
                )
        return None
    return LanguageTags(
        source=_tag_id(tokenizer, "source", source or section.source_language),
        target=_tag_id(tokenizer, "target", target or section.target_language),
    )


def own_language_tags(section: PrepareSection, tokenizer: Tokenizer) -> LanguageTags | None:
    """The tags of the languages that a section names; None if it has no such tags, or does not name both."""
    is_known = UNDETERMINED not in (section.source_language, section.target_language)
    return language_tags(section, tokenizer) if section.tag_both_sides and is_known else None


def check_languages(section: PrepareSection, tokenizer: Tokenizer) -> None:
    """Check that the tokenizer has a tag for each language that a section names.

    Raises:
        UserError: naming the language without a tag, and those with one.
    """
    for side in ("source", "target"):
        language = getattr(section, f"{side}_language")
        if section.tag_both_sides and language != UNDETERMINED:
            _tag_id(tokenizer, side, language)


def _tag_id(tokenizer: Tokenizer, side: str, language: str) -> int:
    tags = tokenizer.tags_of(language)
    if len(tags) > 1:
        allowed = " or ".join(tag[2:-2] for tag in tags)
        raise UserError(f"--{side}-language: {language!r} may be {allowed}; name one of them")
    if not tags:
        given = "none is given, and the run names none" if language == UNDETERMINED else repr(language)
        allowed = ", ".join(tag[2:-2] for tag in tokenizer.tags)
        raise UserError(f"--{side}-language: {given}; allowed is one of {allowed}")
    return tokenizer.tag_id(tags[0])


def encode_source(tokenizer: Tokenizer, lines: Sequence[str], tags: LanguageTags | None) -> list[list[int]]:
    """The pieces of each source line after the tag, unless the line has a tag of its own.

    A line without text, with or without a tag, has no pieces: its translation is empty.
    """
    encoded = zip(lines, tokenizer.encode_source(lines), strict=True)
    # what Python takes for blank may be a piece, as U+0085 is the unknown one
    rows = [row if line.strip() and tokenizer.num_text_pieces(row) else [] for line, row in encoded]
    if tags is None:
        return rows
    return [[tags.source, *row] if row and tokenizer.num_text_pieces(row) == len(row) else row for row in rows]


def encode_target(tokenizer: Tokenizer, lines: Sequence[str], tags: LanguageTags | None) -> list[list[int]]:
    """The pieces of each target line after its tag."""
    rows = tokenizer.encode_target(lines)
    return rows if tags is None else [[tags.target, *row] for row in rows]
