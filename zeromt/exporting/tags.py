"""Notes on language tags, found by trying the exported tokenizer."""

from collections.abc import Callable, Sequence

from data_pipeline.tag_pieces import WORD_BEGIN
from data_pipeline.tokenizer import Tokenizer

_TEXT = "A dog, 12 dogs."
"""Text after a tag, to see whether it is cut into pieces as in training."""


def tag_notes(tokenizer: Tokenizer, encode: Callable[[list[str]], Sequence[Sequence[int]]]) -> list[str]:
    """Notes on how to use tags; empty if there are none.

    Args:
        tokenizer: the run's.
        encode: the exported tokenizer: maps lines to ids without EOS.
    """
    if not tokenizer.tags:
        return []
    lines = [f"{tag} {_TEXT}" for tag in tokenizer.tags]
    rows = zip(tokenizer.tags, tokenizer.encode_source(lines), encode(lines), strict=True)
    wrong = [tag for tag, ours, theirs in rows if list(ours) != list(theirs)]
    if not wrong:
        return [f"tags: {tokenizer.tags[0]} and a space before a text are one piece of the exported tokenizer's"]
    return [
        f"tags: the exported tokenizer does not cut {', '.join(wrong)}; put the piece {WORD_BEGIN}{wrong[0]} before "
        "those of the text"
    ]
