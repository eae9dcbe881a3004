"""The runs of a sweep: combinations of values, and a name for each."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from configs import RunConfig, UserError, load_run

FIXED = ("name", "output", "prepare")
"""Fields that all runs of a sweep have in common."""
_MOST = 10_000


@dataclass(kw_only=True, slots=True, frozen=True)
class Run:
    """One of a sweep's runs."""

    name: str
    settings: Sequence[str]
    """`key=value`, those that all have in common included."""
    config: RunConfig


def runs_of(config: str, words: Sequence[str], plugins: Sequence[str] = ()) -> list[Run]:
    """The runs, in the order of what is written: the last setting changes first.

    Args:
        config: a YAML file, or the name of a shipped run.
        words: `key=[value, ...]`, `{key: value, ...}` or `key=value`.
        plugins: files with components.

    Raises:
        UserError: nothing is varied, something cannot be, or the settings of a run are wrong: then it is named.
    """
    axes, listed, common = [], [], []
    for word in words:
        values = _parsed(word)
        if isinstance(values, Mapping):
            listed.append(values)
        elif isinstance(values, list):
            key = word.partition("=")[0]
            if not values:
                raise UserError(f"{key}: no value in {word!r}; give one or more, such as {key}=[1,2]")
            axes.append([{key: value} for value in values])
        else:
            common.append(word)
    if not axes and not listed:
        raise UserError("SETTING: none has several values; give one, such as 'optimizer.lr=[1e-4,3e-4]'")
    keys = [key for one in (*listed, *(axis[0] for axis in axes)) for key in one]
    for key in keys:
        if key.split(".")[0] in FIXED:
            raise UserError(f"{key}: the same in all runs of a sweep; give it one value, or train the others by hand")
    combinations = [
        {key: value for one in parts for key, value in one.items()}
        for parts in itertools.product(*([listed] if listed else []), *axes)
    ]
    if len(combinations) > _MOST:
        raise UserError(f"SETTING: {len(combinations):,} combinations; allowed are {_MOST:,}")
    return list(_named(config, combinations, common, plugins))


def _named(
    config: str, combinations: Sequence[Mapping[str, Any]], common: Sequence[str], plugins: Sequence[str]
) -> Iterator[Run]:
    base = load_run(config, common, plugins=plugins).name
    short = _short({key for one in combinations for key in one})
    seen: dict[str, Mapping[str, Any]] = {}
    for one in combinations:
        name = "_".join([base, *(f"{short[key]}-{_in_name(value)}" for key, value in one.items())])
        if name in seen:
            raise UserError(f"SETTING: {dict(seen[name])} and {dict(one)} would both be {name}; leave one out")
        seen[name] = one
        settings = [*common, *(f"{key}={_text(value)}" for key, value in one.items()), f"name={name}"]
        try:
            yield Run(name=name, settings=settings, config=load_run(config, settings, plugins=plugins))
        except UserError as error:
            raise UserError("\n".join(f"{name}: {line}" for line in str(error).splitlines())) from error


def _parsed(word: str) -> Any:
    """A mapping of a combination, a list of an axis; else the text."""
    text = word if word.startswith("{") else word.partition("=")[2]
    if not text.startswith(("{", "[")):
        return word
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        closing = {"[": "]", "{": "}"}[text[0]]
        why = str(error).splitlines()[0]
        if not text.rstrip().endswith(closing):
            why = f"it has no {closing}; in a shell, quote a setting with brackets"
        raise UserError(f"SETTING: {word!r} is no YAML: {why}") from error
    if isinstance(values, Mapping) and word.startswith("{"):
        if values and all(isinstance(key, str) for key in values):
            return values
        raise UserError(f"SETTING: {word!r}; give a combination, such as '{{optimizer.lr: 1e-4, model.dropout: 0.3}}'")
    return values if isinstance(values, list) else word


def _short(keys: set[str]) -> dict[str, str]:
    """The last part of each key, or as many as make it another than the others'."""
    short = {}
    for key in keys:
        parts = key.split(".")
        sizes = range(1, len(parts) + 1)
        tails = (".".join(parts[-size:]) for size in sizes)
        short[key] = next(t for t in tails if sum(k == t or k.endswith(f".{t}") for k in keys) == 1)
    return short


def _in_name(value: Any) -> str:
    """A value as a run's name can have it."""
    text = re.sub(r"[^A-Za-z0-9._+-]+", "-", _text(value))
    return text.strip("-") if isinstance(value, Mapping | list) else text


def _text(value: Any) -> str:
    """A value as a setting has it: YAML on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    return yaml.safe_dump(value, default_flow_style=True, width=10**9).strip()
