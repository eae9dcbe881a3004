"""What `zeromt init` writes: the configuration, a reason for each line, and a summary for the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from configs.languages import MULTIPLE
from configs.process.text import visible_name
from zeromt.init.choices import Choice, Choices, Machine
from zeromt.init.corpora import Part
from zeromt.init.survey import Found

WIDTH = 64
"""Columns before the comments, where the settings leave room."""


@dataclass(kw_only=True, frozen=True, slots=True)
class Outcome:
    """All that was given, found and chosen."""

    given: Sequence[str]
    output: str
    folder: Path
    """Of the held-out sets."""
    endings: tuple[str, str]
    """Of their files' names, for either side."""
    train: dict[str, Any] | None
    """The corpus's files as `prepare.train`; None where it was copied."""
    parts: Sequence[Part]
    others: Sequence[str]
    """Files of the folder that are no part of the corpus."""
    found: Found
    languages: tuple[str, str]
    machine: Machine
    choices: Choices

    def two_files(self, name: str) -> dict[str, list[str]]:
        """A set in the folder, as a field of `prepare`."""
        source, target = (str(self.folder / f"{name}.{ending}") for ending in self.endings)
        return {"source": [source], "target": [target]}


def page(outcome: Outcome) -> str:
    """The configuration: a setting a line, each with its reason."""
    given = " ".join(map(visible_name, outcome.given))
    head = f"# Written by `zeromt init {given}`; docs/choosing.md has the rules. What is not set has a default.\n"
    prepare = "".join(_line(line, "  ") for line in _prepare(outcome))
    return f"{head}prepare:\n{prepare}{''.join(map(_line, outcome.choices.run))}"


def _prepare(outcome: Outcome) -> Iterator[Choice]:
    found, choices = outcome.found, outcome.choices
    yield Choice("output", f"data/{Path(outcome.output).stem}", "where `zeromt prepare` writes the dataset")
    ways = {part.how for part in outcome.parts}
    for side, code in zip(("source", "target"), outcome.languages, strict=True):
        how = ways.copy().pop() if len(ways) == 1 else "by names and text"
        yield Choice(f"{side}_language", code, "several languages" if code == MULTIPLE else how)
    copied = ", in one form, with a tag for the target's language" if found.is_tagged else ", in one form"
    what = f"{found.num_pairs:,} pairs"
    what += f" without those with held-out sentences{copied}" if outcome.train is None else ""
    yield Choice("train", outcome.train or outcome.two_files("train"), what)
    once = "once in the corpus" if found.most_uses == 1 else f"in the corpus at most {found.most_uses} times"
    held_out = f"{len(found.valid):,} pairs at random, of sentences that stand {once}"
    yield Choice("valid", outcome.two_files("valid"), held_out)
    yield Choice("test", outcome.two_files("test"), "as many more, for `zeromt evaluate` at the end")
    yield from (choices.tokenizer, choices.max_pieces, choices.cleaning)


def _line(choice: Choice, indent: str = "") -> str:
    value = yaml.safe_dump(choice.value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    value = value.removesuffix("...\n").strip()
    return f"{f'{indent}{choice.key}: {value}'.ljust(WIDTH)}  # {choice.why}\n"


def summary(outcome: Outcome) -> Iterator[str]:
    """What was found and chosen, and the commands that follow."""
    found, (source, target) = outcome.found, outcome.languages
    characters = [sum(len(pair[side]) for pair in found.sample) / len(found.sample) for side in (0, 1)]
    yield (
        f"found     {found.num_pairs:,} pairs, {source} to {target}, {found.num_bytes / 1e6:,.1f} MB; "
        f"a sentence has {characters[0]:.0f} and {characters[1]:.0f} characters on average"
    )
    notes = {
        "pairs repeat another": found.num_repeats,
        "pairs are blank on a side": found.num_blank,
        "units lack a language, or translate it again": found.num_left_out,
    }
    yield from (f"          {number:,} {what}" for what, number in notes.items() if number)
    if found.is_tagged:
        yield f"          to {', '.join(f'{code} {count:,}' for code, count in sorted(found.codes.items()))}"
    if outcome.others:
        yield f"          not read: {', '.join(map(visible_name, outcome.others))}"
    yield (
        f"held out  {len(found.valid):,} pairs to validate and {len(found.test):,} to test, in "
        f"{visible_name(str(outcome.folder))}; no training pair has one of their sentences"
    )
    yield f"chosen    for {outcome.machine}: {_chosen(outcome.choices)}"
    shown = visible_name(outcome.output)
    yield from (f"{shown} says why, line by line. Next:", f"  zeromt prepare {shown}", f"  zeromt launch local {shown}")


def _chosen(choices: Choices) -> str:
    settings = {choice.key: choice.value for choice in choices.run}
    model, stream, training = settings.get("model", {}), settings["stream"], settings["training"]
    layers = f"d_model {model.get('d_model')}, {model.get('encoder_layers')} + {model.get('decoder_layers')} layers"
    minutes = f" or {training['max_minutes']} minutes" if "max_minutes" in training else ""
    return (
        f"{choices.tokenizer.value['vocab_size']:,} pieces, {settings.get('preset', layers)}, "
        f"{stream['micro_batches']} x {stream['target_tokens']:,} tokens an update, "
        f"{training['max_updates']:,} updates{minutes}"
    )
