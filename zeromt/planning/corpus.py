"""The data sizes that a plan needs: from prepared datasets if they exist, else assumed from the configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError
from configs.process.files import is_file, naming
from configs.process.files.inside import read_json
from model.parameters import Vocabularies

ASSUMED_LENGTH = 32
"""Tokens of a sentence if no prepared dataset exists."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Corpus:
    """Sizes of the data. Every sentence has an EOS, which counts as a token."""

    vocabularies: Vocabularies
    source_length: float
    """Mean number of tokens of a source sentence."""
    target_length: float
    """Mean number of tokens of a target sentence."""
    assumptions: tuple[str, ...]
    """What had to be assumed, one line each."""


def read_corpus(config: RunConfig, *, length: float | None) -> Corpus:
    """Sizes of the run's data.

    Args:
        config: the run's configuration.
        length: tokens of a sentence on both sides, which replaces the datasets' mean; None uses that.

    Raises:
        UserError: the index of a dataset cannot be read.
    """
    indices = [index for source in config.datasets if (index := _index(source.path)) is not None]
    if not indices:
        return _assumed(config, length)
    pairs = sum(index["pairs"] for index in indices)
    sources, targets = (sum(index[f"{side}_tokens"] for index in indices) + pairs for side in ("source", "target"))
    tokenizer = indices[0]["tokenizer"]
    is_whole = len(indices) == len(config.datasets)
    missing = "some datasets are missing: lengths and vocabularies are those of the others"
    return Corpus(
        vocabularies=Vocabularies(source=tokenizer["source_vocab_size"], target=tokenizer["target_vocab_size"]),
        source_length=length or sources / max(pairs, 1),
        target_length=length or targets / max(pairs, 1),
        assumptions=() if is_whole else (missing,),
    )


def _assumed(config: RunConfig, length: float | None) -> Corpus:
    section = config.prepare.tokenizer
    assumptions = [f"no prepared dataset found: vocabulary of {section.vocab_size} pieces (prepare.tokenizer)"]
    if length is None:
        assumptions.append(f"{ASSUMED_LENGTH} tokens per sentence (--length)")
    target = section.vocab_size
    if section.vocabulary == "separate":
        target = section.target_vocab_size or section.vocab_size
    return Corpus(
        vocabularies=Vocabularies(source=section.vocab_size, target=target),
        source_length=length or ASSUMED_LENGTH,
        target_length=length or ASSUMED_LENGTH,
        assumptions=tuple(assumptions),
    )


def _index(path: str) -> dict[str, Any] | None:
    file = Path(path) / "index.json"
    with naming("prepare.output"):
        if "://" in path or not is_file(file):
            return None
    try:
        tree: dict[str, Any] = read_json(file)
        counts = [tree[key] for key in ("pairs", "source_tokens", "target_tokens")]
        sizes = [tree["tokenizer"][f"{side}_vocab_size"] for side in ("source", "target")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"prepare.output: {file} cannot be read ({error!r}); give a prepared dataset") from error
    if not all(isinstance(number, int) for number in [*counts, *sizes]):
        raise UserError(f"prepare.output: {file} has sizes that are not numbers; give a prepared dataset")
    return tree
