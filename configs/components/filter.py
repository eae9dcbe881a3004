"""The base classes of filters of training pairs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

from configs.components.registry import Component

Find = Callable[[list[str], list[str]], Sequence[int]]
Change = Callable[[list[str], list[str]], tuple[list[str], list[str]]]


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Corpus:
    """What a filter can know about the corpus besides the pairs."""

    source_language: str
    """Code of the source language, in any form of `configs.languages`."""
    target_language: str
    """Code of the target language, likewise."""
    held_out: Sequence[tuple[str, str]] = ()
    """The pairs of the validation and test sets, if a filter `needs_held_out`."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Filter(Component):
    """A filter of training pairs; components derive from `DroppingFilter` or `ChangingFilter`.

    It must be pure: the result for a pair must not depend on other pairs or on the process. Filters are pickled and
    sent to other processes, so anything large, or that cannot be pickled, must be loaded in `open`.
    """

    needs_held_out: ClassVar[bool] = False
    """Whether it needs the pairs of the validation and test sets."""

    def report_name(self) -> str:
        """The filter's name in the report; if two filters have the same name, the later one gets a number."""
        return self.kind


@dataclasses.dataclass(kw_only=True, frozen=True)
class DroppingFilter(Filter):
    """A filter that drops pairs."""

    def open(self, corpus: Corpus, place: str) -> Find:
        """Load what the filter needs; called once in each process, and once before any long work begins.

        Args:
            corpus: the corpus.
            place: the filter's place in the configuration, for messages: `prepare.filters.0`.

        Returns:
            A function like `find`.

        Raises:
            UserError: the filter cannot work with these fields or languages, or a package is missing.
        """
        return self.find

    def find(self, sources: list[str], targets: list[str]) -> Sequence[int]:
        """The indices of the pairs to drop, in a list of any number of pairs (or none), given by their two sides."""
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True)
class ChangingFilter(Filter):
    """A filter that changes the text of pairs."""

    def open(self, corpus: Corpus, place: str) -> Change:
        """Load what the filter needs, like `DroppingFilter.open`; returns a function like `change`.

        Raises:
            UserError: the filter cannot work with these fields or languages, or a package is missing.
        """
        return self.change

    def change(self, sources: list[str], targets: list[str]) -> tuple[list[str], list[str]]:
        """Both sides of some pairs after the change, with the same number of lines."""
        raise NotImplementedError
