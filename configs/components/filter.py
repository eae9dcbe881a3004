"""What a filter of training pairs is."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

from configs.components.registry import Component

Find = Callable[[list[str], list[str]], Sequence[int]]
Change = Callable[[list[str], list[str]], tuple[list[str], list[str]]]


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Corpus:
    """What a filter may know beside the pairs that it is given."""

    source_language: str
    """By any of its codes: see `configs.languages`."""
    target_language: str
    held_out: Sequence[tuple[str, str]] = ()
    """The pairs of the validation and test sets, where a filter needs them."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Filter(Component):
    """Looks at training pairs; a component derives from `DroppingFilter` or `ChangingFilter`.

    It is pure: the same pair is always treated alike, whatever stands beside it, in whichever process. It is sent to
    processes by pickle, so what is large or cannot be sent is loaded by `open`.
    """

    needs_held_out: ClassVar[bool] = False
    """Whether it is given the pairs of the held-out sets."""

    def report_name(self) -> str:
        """What it is called in the report; of two filters of one name, the later is given a number."""
        return self.kind


@dataclasses.dataclass(kw_only=True, frozen=True)
class DroppingFilter(Filter):
    """A filter that drops pairs."""

    def open(self, corpus: Corpus, place: str) -> Find:
        """Prepare to work: called once a process, and once before anything long is done.

        Args:
            corpus: what is known of it.
            place: where the filter stands in the configuration, for messages: `prepare.filters.0`.

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
        """Both sides of a chunk as they should be, with as many lines."""
        raise NotImplementedError
