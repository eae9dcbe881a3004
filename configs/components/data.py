"""The base classes of what happens to pairs: readers and filters while a dataset is prepared, modifiers afterwards."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from configs.components.registry import Component
from configs.fields import PathText

Find = Callable[[list[str], list[str]], Sequence[int]]
Change = Callable[[list[str], list[str]], tuple[list[str], list[str]]]
Judge = Callable[["Pairs"], tuple[list[str], list[str], Sequence[int]]]


Row = Sequence[str]
"""Source, target and further texts of a pair."""


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """Something in a file that makes no pair, and is counted by its reason."""

    reason: str
    """In the plural, such as `units without fr`."""


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class RawFiles:
    """What a reader reads, and what the configuration asks for."""

    paths: tuple[Path, ...]
    """A file, or folder, with both sides; of parallel text that of the source, and that of the target."""
    source_language: str
    """Code of the language that is wanted of files with several, in any form of `configs.languages`."""
    target_language: str
    further: Sequence[str] = ()
    """Fields of each pair that are wanted besides both sides, such as its scores."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Reader(Component):
    """A format of raw text. Readers are pickled and sent to other processes."""

    takes_folders: ClassVar[bool] = False
    """Whether what it reads may be a folder."""

    def rows(self, files: RawFiles) -> Iterator[Row | LeftOut]:
        """The pairs in their order, in memory that does not grow with the file. Line ends in them become spaces.

        Raises:
            UserError: during reading, with the file and the line, if it is broken or has no such fields.
        """
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Corpus:
    """What a filter can know about the corpus besides the pairs."""

    source_language: str
    """Code of the source language, in any form of `configs.languages`."""
    target_language: str
    """Code of the target language, likewise."""
    held_out: Sequence[tuple[str, str]] = ()
    """The pairs of the validation and test sets, if a filter `needs_held_out`."""


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Pairs:
    """Some pairs, with their further columns."""

    sources: list[str]
    targets: list[str]
    where: Callable[[int], str]
    """File and line of the pair with an index, for messages."""
    scores: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Scores by name: an array (pairs,) of float32, NaN where a pair has none. Those of the filter's `score_names`."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Filter(Component):
    """A filter of training pairs; components derive from `DroppingFilter`, `ChangingFilter` or `JudgingFilter`.

    It must be pure: the result for a pair must not depend on other pairs or on the process. Filters are pickled and
    sent to other processes, so anything large, or that cannot be pickled, must be loaded in `open`.
    """

    needs_held_out: ClassVar[bool] = False
    """Whether it needs the pairs of the validation and test sets."""
    decides_nothing: ClassVar[frozenset[str]] = frozenset()
    """Fields on which no pair depends: a dataset stays the same when they change."""

    def score_names(self) -> Sequence[str]:
        """The scores of pairs that it goes by. The tokenizer's training text, which has none yet, does without it."""
        return ()

    def depends_on(self) -> Sequence[str]:
        """Paths of files and folders whose content, like its fields, decides what it does."""
        return ()

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


@dataclasses.dataclass(kw_only=True, frozen=True)
class JudgingFilter(Filter):
    """A filter that may drop and change pairs, and go by their scores."""

    def open(self, corpus: Corpus, place: str) -> Judge:
        """Load what the filter needs, like `DroppingFilter.open`; returns a function like `judge`.

        Raises:
            UserError: the filter cannot work with these fields or languages, or a package is missing.
        """
        return self.judge

    def judge(self, pairs: Pairs) -> tuple[list[str], list[str], Sequence[int]]:
        """Both sides of the pairs after the change, with the same number of lines, and the indices of those to drop."""
        raise NotImplementedError


Chance = Annotated[float, Field(ge=0, le=1)]
T = TypeVar("T")
_MASK = 2**64 - 1


class Draws:
    """Random numbers for one pair and one modifier: SplitMix64 (Steele et al., 2014) with a given initial state.

    The same state gives the same numbers on every machine and with every version of Python.
    """

    def __init__(self, state: int) -> None:
        """Start at a state, which may be any integer."""
        self._state = state & _MASK

    def bits(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        x = self._state
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
        return x ^ (x >> 31)

    def below(self, count: int) -> int:
        """A number in `range(count)`."""
        return self.bits() * count >> 64

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.bits() < int(probability * 2**64)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items; there must be at least one."""
        return items[self.below(len(items))]


@dataclasses.dataclass(kw_only=True, frozen=True)
class Modifier(Component):
    """Changes training pairs when they are read; components derive from one of the three classes below.

    It must be pure: its result must depend only on its fields, the pair and the draws. It is not applied to held-out
    sets or to the tokenizer's training text.
    """

    probability: Chance = 0.05
    """Probability of changing a pair, each time that it is read."""
    datasets: list[PathText] = dataclasses.field(default_factory=list)
    """Paths of the datasets whose pairs are changed, as in `stream.datasets` or in a phase; empty for all."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class TextModifier(Modifier):
    """Changes the normalized text of a pair, without its tags."""

    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        """Texts that it may insert into source and target; the tokenizer must be able to spell all of them."""
        return (), ()

    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        """Both sides after the change. A pair that becomes empty, or that cannot be spelled, is left unchanged."""
        raise NotImplementedError

    def to_translate(self, source: str) -> tuple[str, Callable[[str], str]] | None:
        """What `zeromt translate` is to translate instead of a line, and what undoes that in its translations; None
        for the line itself."""
        return None


@dataclasses.dataclass(kw_only=True, frozen=True)
class MergingModifier(Modifier):
    """Merges a pair with the next pair of the same dataset in the same window."""

    def merge(self, pair: tuple[str, str], neighbour: tuple[str, str], draws: Draws) -> tuple[str, str]:
        """Source and target of the merged pair. The neighbour is unchanged by other modifiers."""
        raise NotImplementedError


@dataclasses.dataclass(kw_only=True, frozen=True)
class SubwordModifier(Modifier):
    """Cuts words into other pieces. It must be the last modifier, and there can be only one per dataset."""

    probability: Chance = 1.0
    model_type: ClassVar[str] = ""
    """Kind of tokenizer that it works with: `bpe` or `unigram`."""

    def cut(self, word: str, scores: Mapping[str, float], draws: Draws) -> list[str]:
        """The pieces of a word.

        Args:
            word: as SentencePiece spells it.
            scores: of the vocabulary's normal pieces.
            draws: of this segmentation.
        """
        raise NotImplementedError


def order_problems(modifiers: Sequence[Modifier]) -> Iterator[str]:
    """Modifiers in a list that are in the wrong order, one line each.

    Args:
        modifiers: `augment` of the stream or of a phase.
    """
    for (number, modifier), (_, later) in itertools.combinations(enumerate(modifiers), 2):
        is_apart = modifier.datasets and later.datasets and not set(modifier.datasets) & set(later.datasets)
        if isinstance(modifier, SubwordModifier) and not is_apart:
            yield (
                f"augment.{number}: {modifier.kind} stands before {later.kind}; put it last, once per dataset, "
                "since it segments the text that the others produce"
            )
