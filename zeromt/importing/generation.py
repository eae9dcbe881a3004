"""The search settings of a Transformers checkpoint, as `evaluation.search` of a run.

A note lists those that have no counterpart here; but a rule on which pieces may not be generated is part of the model,
and without a counterpart it is an error.
"""

import dataclasses
from typing import Any

from configs import ConfigError, SearchSection, UserError
from configs.load import parse_tree

_NO_RATIO = 1e-6
"""Ratio for a length limit that is a number alone: the field must be positive."""
_IDS = ("decoder_start_token_id", "eos_token_id", "forced_eos_token_id")
_FORBIDDEN = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
_RENAMED = {"num_beams": "beam", "length_penalty": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
_SAMPLING = ("temperature", "top_k", "top_p")
_SEARCH = {
    *_RENAMED, *_SAMPLING, "do_sample", "early_stopping", "max_length", "max_new_tokens", "min_length",
    "min_new_tokens",
}  # fmt: skip
_OTHERS = {
    *_IDS, *_FORBIDDEN, "pad_token_id", "bos_token_id", "forced_bos_token_id", "use_cache", "transformers_version",
    "_from_model_config",
}  # fmt: skip
"""Settings that are not of a search, or are read elsewhere."""


def read_search(generation: Any, config: Any) -> tuple[SearchSection, list[str]]:
    """The search settings of a checkpoint, and notes for the user.

    Args:
        generation: its `transformers.GenerationConfig`.
        config: its configuration in Transformers.

    Raises:
        UserError: a value is invalid, or forbids pieces that this project's search may generate.
    """
    given = {name: value for name, value in generation.to_diff_dict().items() if value is not None}
    _check_ids(given, config)
    settings = {name: value for name, value in given.items() if name in _SEARCH}
    left_out = {n: v for n, v in given.items() if n not in _SEARCH | _OTHERS and not _is_neutral(v)}
    section = _search(settings, left_out) if settings else SearchSection()
    notes = []
    if section != SearchSection():
        plain = dataclasses.asdict(SearchSection())
        changed = {name: value for name, value in dataclasses.asdict(section).items() if value != plain[name]}
        notes.append(f"search, as its generation settings say: {_shown(changed)}")
    if left_out:
        notes.append(f"search, not taken over, as there is nothing like it here: {_shown(left_out)}")
    return section, notes


def _is_neutral(value: Any) -> bool:
    """Whether a setting without a counterpart changes nothing, as all of them do at 0, 1 and nothing."""
    return value is not True and value in (0, 1, "", [], {})


def _check_ids(given: dict[str, Any], config: Any) -> None:
    """Check that a translation's first and last pieces and its forbidden ones are those of this project's search.

    Raises:
        UserError: they are not.
    """
    start, end = config.decoder_start_token_id, config.eos_token_id
    for name, allowed in zip(_IDS, (start, end, end), strict=True):
        if given.get(name, allowed) not in (allowed, [allowed]):
            raise UserError(f"--huggingface: {name} {given[name]!r} of its generation settings; allowed is {allowed}")
    never = {config.pad_token_id, start} - {end}
    for name in _FORBIDDEN:
        if any(word not in [*never, *([i] for i in never)] for word in given.get(name, ())):
            raise UserError(
                f"--huggingface: {name} {given[name]!r}; only PAD and BOS are never written here "
                f"({', '.join(map(str, sorted(never)))}); delete the field to import without it"
            )


def _search(settings: dict[str, Any], left_out: dict[str, Any]) -> SearchSection:
    """The section; what it has no place for is added to `left_out`.

    `max_length` and `min_length` count BOS too; `generate` allows EOS after `min_length` pieces.

    Raises:
        UserError: a value is invalid.
    """
    early = settings.get("early_stopping", False)
    options: dict[str, Any] = {"beam": 1, "length_penalty": 1.0, "length_penalty_kind": "mean"}
    options |= {ours: settings[theirs] for theirs, ours in _RENAMED.items() if theirs in settings}
    options["patience"] = 0.0 if early == "never" else 1.0
    if options["length_penalty"] < 0:
        left_out["length_penalty"], options["length_penalty"] = options["length_penalty"], 1.0
    if options["beam"] != 1 and early is False:
        left_out["early_stopping"] = False
    if "max_length" in settings or "max_new_tokens" in settings:
        longest = settings["max_new_tokens"] if "max_new_tokens" in settings else settings["max_length"] - 1
        options |= {"max_length_ratio": _NO_RATIO, "max_length_extra": max(1, longest)}
    shortest = settings["min_new_tokens"] + 1 if "min_new_tokens" in settings else settings.get("min_length", 0)
    if shortest > options.get("max_length_extra", SearchSection().max_length_extra):
        left_out["min_length"] = shortest
    else:
        options["min_length_extra"] = shortest
    if settings.get("do_sample") and options["beam"] == 1:
        options["sampler"] = {"kind": "truncated", "top_k": 50} | {n: settings[n] for n in _SAMPLING if n in settings}
    elif settings.get("do_sample"):
        left_out["do_sample"] = True
    try:
        section: SearchSection = parse_tree(options, SearchSection)
    except ConfigError as error:
        raise UserError(f"--huggingface: its generation settings: {'; '.join(error.problems)}") from error
    return section


def _shown(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())
