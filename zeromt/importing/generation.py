"""The search settings of a Transformers checkpoint, as `evaluation.search` of a run.

A note lists those that are not taken over; but a rule on which pieces may not be generated is part of the model,
and without a counterpart it is an error.
"""

from typing import Any

from configs import ConfigError, SearchSection, UserError
from configs.load import parse_tree

_IDS = ("decoder_start_token_id", "eos_token_id", "forced_eos_token_id")
_FORBIDDEN = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
_RENAMED = {"num_beams": "beam", "length_penalty": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
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
    settings = {name: value for name, value in given.items() if name in (*_RENAMED, "early_stopping")}
    left_out = {n: v for n, v in given.items() if n not in {*settings, *_OTHERS} and not _is_neutral(v)}
    options: dict[str, Any] = {}
    if settings:
        options = {"beam": 1, "length_penalty": 1.0, "length_penalty_kind": "mean"}
        options |= {ours: settings[theirs] for theirs, ours in _RENAMED.items() if theirs in settings}
        options["patience"] = 0.0 if settings.get("early_stopping") == "never" else 1.0
    try:
        section: SearchSection = parse_tree(options, SearchSection)
    except ConfigError as error:
        raise UserError(f"--huggingface: its generation settings: {'; '.join(error.problems)}") from error
    notes = [f"search, as its generation settings say: {_shown(options)}"] if options else []
    if left_out:
        notes.append(f"search, not taken over: {_shown(left_out)}")
    return section, notes


def _is_neutral(value: Any) -> bool:
    """Whether a setting without a counterpart changes nothing, as all do at 0, at 1 and unset."""
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


def _shown(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())
