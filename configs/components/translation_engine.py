"""The base class of translation engines, which translate a corpus: a run, its export, or any program."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Candidate:
    """A translation of a line."""

    text: str
    log_prob: float | None = None
    """In nats; None if the engine does not tell."""
    score: float | None = None
    """By which the engine orders candidates, the higher the better."""


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Translated:
    """What became of a line: candidates, best first, or the reason why there is none."""

    candidates: list[Candidate] = dataclasses.field(default_factory=list)
    hole: str | None = None


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Sources:
    """The lines of a chunk that have text."""

    numbers: list[int]
    """Of the lines in the corpus, from 1."""
    lines: list[str]


Translate = Callable[[Iterable[Sources], Callable[[int], None]], Iterator[list[Translated]]]
"""From chunks, taken a few ahead, to what became of their lines, in order; calls its second argument with the number of
lines just done."""


class Prepared(Protocol):
    """An engine whose model is found; nothing large is loaded yet."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that decides the translations, as JSON: hashes of models, settings, prompt; no paths and no secrets."""
        ...

    @property
    def run(self) -> Any:
        """The run that translates, with its `config` and `tokenizer`, for the scores; None where it is no run."""
        ...

    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Load the model.

        Args:
            stack: ends what is started.
            folder: for files that all parts share, such as an export.
            processes: None for one on each GPU or core.

        Raises:
            UserError: it cannot be loaded.
        """
        ...

    def build(self) -> Mapping[str, str]:
        """Versions and processor, among which translations may differ in a few pieces; after `start`."""
        ...

    def warnings(self) -> list[str]:
        """About the lines so far, for people."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True)
class TranslationEngine(Component):
    """Translates a corpus for `zeromt translate --part`. What it makes of a chunk depends on that chunk alone."""

    def prepare(self, candidates: int) -> Prepared:
        """Find the model, and check the settings.

        Args:
            candidates: translations that are wanted of each line.

        Raises:
            UserError: a field is wrong, or a model is missing.
        """
        raise NotImplementedError
