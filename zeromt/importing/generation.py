"""The search settings of a Transformers checkpoint, as `evaluation.search` of a run.

They are in `generation_config.json`, or in old checkpoints in `config.json`. A note lists those that have no
counterpart here; but a rule on which pieces may not be generated is part of the model, and without a counterpart it is
an error.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs import ConfigError, SearchSection, UserError
from configs.load import parse_tree
from configs.process.files import is_file
from zeromt.importing.json_files import CONFIG, GENERATION_CONFIG, read_json

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "diversity_penalty": (0.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,),
    "max_time": (),
    "min_p": (0.0,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "prefix": ("",),
    "renormalize_logits": (False,),
    "repetition_penalty": (1.0,),
    "sequence_bias": (),
    "stop_strings": (),
    "task_specific_params": ({},),
    "top_h": (),
    "typical_p": (1.0,),
    "use_mtp": (False,),
    "watermarking_config": (),
}
"""Settings without a counterpart here, with the values that have no effect."""
_READ = frozenset({
    "num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size", "max_length", "max_new_tokens",
    "min_length", "min_new_tokens", "do_sample", "temperature", "top_k", "top_p",
})  # fmt: skip
_SAMPLING_TOP_K = 50
"""Transformers' default for `top_k`."""
_NO_RATIO = 1e-6
"""Ratio for a length limit that is a number alone: the field must be positive."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Generation:
    """A checkpoint's generation settings."""

    search: SearchSection
    forced_first: int | None = None
    """The id with which translations are forced to begin."""
    notes: list[str] = field(default_factory=list)


def read_generation(folder: Path, config: Mapping[str, Any]) -> Generation:
    """Read the generation settings of a checkpoint.

    Args:
        folder: of the checkpoint.
        config: its `config.json`.

    Raises:
        UserError: a value is invalid, or forbids pieces that this project's search may generate.
    """
    is_own = is_file(folder / GENERATION_CONFIG)
    where = GENERATION_CONFIG if is_own else CONFIG
    settings = read_json(folder / GENERATION_CONFIG) if is_own else config
    if not isinstance(settings, dict):
        raise UserError(f"--huggingface: {folder / GENERATION_CONFIG} holds no settings; give a complete checkpoint")
    reader = _Reader(where, settings)
    _check_ids(reader, config)
    given = {name: value for name, value in settings.items() if value is not None}
    search, left_out = _search(reader) if given.keys() & _READ else (SearchSection(), {})
    left_out |= {n: given[n] for n, neutral in _NEUTRAL.items() if n in given and given[n] not in neutral}
    notes = [f"search, as {where} says: {_shown(search)}"] if search != SearchSection() else []
    if left_out:
        shown = ", ".join(f"{name} {value!r}" for name, value in left_out.items())
        notes.append(f"search, not taken over from {where}, as there is nothing like it here: {shown}")
    return Generation(search=search, forced_first=reader.whole("forced_bos_token_id"), notes=notes)


class _Reader:
    """Typed access to the fields of a JSON object."""

    def __init__(self, where: str, settings: Mapping[str, Any]) -> None:
        self.where = where
        self._settings = settings

    def get(self, name: str) -> Any:
        """The value; None if it is missing."""
        return self._settings.get(name)

    def whole(self, name: str) -> int | None:
        """A whole number."""
        value = self.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise self.error(name, "allowed is a whole number")
        return value

    def number(self, name: str) -> float | None:
        """A number."""
        value = self.get(name)
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise self.error(name, "allowed is a number")
        return None if value is None else float(value)

    def error(self, name: str, what: str) -> UserError:
        """The error that a field cannot be used."""
        return UserError(f"--huggingface: {self.where}: {name} {self.get(name)!r}; {what}")


def _check_ids(reader: _Reader, config: Mapping[str, Any]) -> None:
    """Check that a translation's first and last pieces and its forbidden ones are those of this project's search.

    Raises:
        UserError: it is not.
    """
    for name in ("decoder_start_token_id", "eos_token_id"):
        if (value := reader.get(name)) not in (None, config[name], [config[name]]):
            raise UserError(
                f"--huggingface: {reader.where}: {name} {value!r}, and config.json says {config[name]!r}; "
                "make them agree"
            )
    if reader.get("forced_eos_token_id") not in (None, config["eos_token_id"], [config["eos_token_id"]]):
        raise reader.error("forced_eos_token_id", f"allowed is eos_token_id, {config['eos_token_id']}")
    never = {config["pad_token_id"], config["decoder_start_token_id"]} - {config["eos_token_id"]}
    for name in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"):
        value = reader.get(name) or []
        words = value if isinstance(value, list) else [value]
        if any(word not in [*never, *([i] for i in never)] for word in words):
            raise reader.error(
                name,
                f"only PAD and BOS are never written here ({', '.join(map(str, sorted(never)))}); "
                "delete the field to import without it",
            )


def _search(reader: _Reader) -> tuple[SearchSection, dict[str, Any]]:
    """The search settings, and those that cannot be taken over."""
    left_out: dict[str, Any] = {}
    beam = reader.whole("num_beams") or 1
    penalty = reader.number("length_penalty")
    if penalty is not None and penalty < 0:
        left_out["length_penalty"], penalty = penalty, None
    early = reader.get("early_stopping")
    if beam > 1 and not isinstance(early, str) and early is not True:
        left_out["early_stopping"] = bool(early)
    shortest, longest = _lengths(reader)
    options: dict[str, Any] = {
        "beam": beam,
        "patience": 0.0 if early == "never" else 1.0,
        "length_penalty": 1.0 if penalty is None else penalty,
        "length_penalty_kind": "mean",
        "no_repeat_ngram": reader.whole("no_repeat_ngram_size") or 0,
    }
    if longest is not None:
        options |= {"max_length_ratio": _NO_RATIO, "max_length_extra": max(1, longest)}
    most = longest if longest is not None else SearchSection().max_length_extra
    if shortest > most:
        left_out["min_length"] = shortest
    else:
        options["min_length_extra"] = shortest
    if reader.get("do_sample") and beam == 1:
        options["sampler"] = _sampling(reader)
    elif reader.get("do_sample"):
        left_out["do_sample"] = True
    try:
        section: SearchSection = parse_tree(options, SearchSection)
    except ConfigError as error:
        raise UserError(f"--huggingface: {reader.where}: {'; '.join(error.problems)}") from error
    return section, left_out


def _lengths(reader: _Reader) -> tuple[int, int | None]:
    """Shortest and longest translation in pieces, EOS counted; the longest is None if it is not given.

    `max_length` and `min_length` count BOS too; `generate` allows EOS after `min_length` pieces.
    """
    shortest = reader.whole("min_new_tokens")
    shortest = (reader.whole("min_length") or 0) if shortest is None else shortest + 1
    longest = reader.whole("max_new_tokens")
    whole = reader.whole("max_length")
    if longest is None and whole is not None:
        longest = whole - 1
    return shortest, longest


def _sampling(reader: _Reader) -> dict[str, Any]:
    top_k = reader.whole("top_k")
    return {
        "kind": "truncated",
        "temperature": reader.number("temperature") or 1.0,
        "top_k": _SAMPLING_TOP_K if top_k is None else top_k,
        "top_p": reader.number("top_p") or 1.0,
    }


def _shown(section: SearchSection) -> str:
    """The fields that are not at their default."""
    plain = SearchSection()
    changed = {f.name: getattr(section, f.name) for f in dataclasses.fields(section)}
    return ", ".join(f"{n}={v}" for n, v in changed.items() if v != getattr(plain, n)) or "greedy"
