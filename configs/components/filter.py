"""The base classes of filters of training pairs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

from configs.components.registry import Component

Find = Callable[[list[str], list[str]], Sequence[int]]
Change = Callable[[list[str], list[str]], tuple[list[str], list[str]]]


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Corpus:
    """What a filter may know besides the pairs."""

    source_language: str
    """Any code of the language: see `configs.languages`."""
    target_language: str
    held_out: Sequence[tuple[str, str]] = ()
    """The pairs of the validation and test sets, if a filter needs them."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Filter(Component):
    """A filter of training pairs; components derive from `DroppingFilter` or `ChangingFilter`.

    It must be pure: a pair is always treated alike, whatever the other pairs and the process. It is pickled for
    processes, so `open` must load what is large or cannot be pickled.
    """

    needs_held_out: ClassVar[bool] = False
    """Whether it needs the pairs of the held-out sets."""

    def report_name(self) -> str:
        """Its name in the report; if two filters have the same name, the later gets a number."""
        return self.kind


@dataclasses.dataclass(kw_only=True, frozen=True)
class DroppingFilter(Filter):
    """A filter that drops pairs."""

    def open(self, corpus: Corpus, place: str) -> Find:
        """Prepare to work: called once per process, and once before any long work begins.

        Args:
            corpus: the corpus.
            place: the filter's place in the configuration, for messages: `prepare.filters.0`.

        Returns:
            A function like `find`.

        Raises:
            UserError: it cannot work with these fields or languages, or a package is missing.
        """
        return self.find

    def find(self, sources: list[str], targets: list[str]) -> Sequence[int]:
        """The rows to drop of a chunk of any number of pairs, none too; line N of one side belongs to line N of the
        other."""
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True)
class ChangingFilter(Filter):
    """A filter that changes lines."""

    def open(self, corpus: Corpus, place: str) -> Change:
        """Prepare to work, as `DroppingFilter.open`.

        Raises:
            UserError: it cannot work with these fields or languages, or a package is missing.
        """
        return self.change

    def change(self, sources: list[str], targets: list[str]) -> tuple[list[str], list[str]]:
        """Both sides of a chunk after the change, with the same number of lines."""
        raise NotImplementedError
