"""`search.json`: the settings of a run's search, for programs that translate with its export.

Such programs have no length limit that depends on the source's length, as `evaluation.search` has. The limit is written
as a ratio, an extra number and a maximum, all in pieces with EOS counted; docs/export.md shows how to apply it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs import RunConfig, SearchSection
from data_pipeline.tokenizer import Tokenizer
from trainer.inference.translation.languages import own_language_tags

SEARCH = "search.json"


def mean_penalty(search: SearchSection) -> float:
    """The exponent a of length^a, by which other programs divide, that is closest to the run's penalty.

    `mean` is of this form. `gnmt` (Wu et al., 2016) divides by ((5 + length) / 6)^alpha: near 20 pieces,
    a = 0.8 alpha prefers one length over another as much as that does.
    """
    return (0.8 if search.length_penalty_kind == "gnmt" else 1.0) * search.length_penalty


def longest_of_all(search: SearchSection, max_positions: int) -> int:
    """Maximum length of a translation, of any source that the model accepts, in pieces with EOS."""
    return max(1, min(int(max_positions * search.max_length_ratio) + search.max_length_extra, max_positions))


def write_search(
    folder: Path, config: RunConfig, tokenizer: Tokenizer, *, options: dict[str, Any] | None = None
) -> list[str]:
    """Write the file; returns notes for the user.

    Args:
        folder: of the export.
        config: of the run.
        tokenizer: the run's.
        options: further arguments for the other program, under the names of `translate_batch`.

    Raises:
        OSError: it cannot be written.
    """
    search, most = config.evaluation.search, config.model.max_positions
    tags = own_language_tags(config.prepare, tokenizer)
    tree: dict[str, Any] = {
        "max_length": {"ratio": search.max_length_ratio, "extra": search.max_length_extra, "most": most},
        "source_tag": None if tags is None else f">>{_language(tokenizer, tags.source)}<<",
        "target_prefix": None if tags is None else tokenizer.target_pieces([tags.target]),
    }
    if options is not None:
        tree["translate_batch"] = options
    (folder / SEARCH).write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shown = "sampling" if search.sampler else f"beam {search.beam}" if search.beam > 1 else "greedy"
    limit = f"min({most}, int({search.max_length_ratio:g} n) + {search.max_length_extra})"
    notes = [f"search as the run's in {SEARCH}: {shown}; of a source of n pieces, at most {limit}, EOS counted"]
    left_out = list(_left_out(search))
    return [*notes, *([f"search, not as the run's: {'; '.join(left_out)}"] if left_out else [])]


def ctranslate2_options(search: SearchSection, max_positions: int) -> dict[str, Any]:
    """Arguments of `ctranslate2.Translator.translate_batch` for the run's search, except the length limit."""
    options: dict[str, Any] = {
        "beam_size": search.beam,
        "max_input_length": max_positions,
        "min_decoding_length": max(0, search.min_length_extra - 1),  # without EOS
        "no_repeat_ngram_size": search.no_repeat_ngram,
        "suppress_sequences": [["<pad>"], ["<s>"]],
    }
    if search.beam > 1:
        options |= {"length_penalty": mean_penalty(search), "patience": search.patience or 1.0}
    if search.sampler is not None:
        options |= search.sampler.exported("ctranslate2") or {}
    return options


def _language(tokenizer: Tokenizer, number: int) -> str:
    return next(tag[2:-2] for tag in tokenizer.tags if tokenizer.tag_id(tag) == number)


def _left_out(search: SearchSection) -> Iterator[str]:
    """Settings that other programs cannot express, one phrase each."""
    is_beam, sampler = search.beam > 1, search.sampler
    if is_beam and search.length_penalty_kind == "gnmt" and search.length_penalty:
        yield f"length_penalty {search.length_penalty:g} of gnmt is length^{mean_penalty(search):g}"
    if is_beam and search.patience != 1:
        yield f"patience {search.patience:g}: CTranslate2 has no 'never', Transformers nothing else but 1"
    if sampler is not None and None in map(sampler.exported, ("huggingface", "ctranslate2")):
        yield f"sampler {sampler.kind}, which not all programs have"
    if search.min_length_ratio:
        yield f"min_length_ratio {search.min_length_ratio:g}"
