"""Two passes over a corpus in bounded memory: figures, and pairs to hold out, with sentences that stand there once."""

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from configs import UserError
from configs.languages import MULTIPLE
from configs.process.progress import Progress
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.filters.held_out import fold
from data_pipeline.preparation.raw.corpus import CHUNK_LINES, corpus_units
from zeromt.init.corpora import TAGGED, Part, meaning

LEAST_PAIRS = 100
"""Of a corpus of which pairs are held out."""
LEAST_SET = 5
MOST_SET = 1000
PART_OF_SET = 20
"""A set has at most one pair of so many."""
SAMPLE_PAIRS = 20_000
LONGEST = 2000
"""Characters of a side of a pair that may be held out or looked at."""
SPAN_PAIRS = 16_384
SEED = 1
MOST_HASHES = 1 << 20
"""Pairs that are held in memory to count repeats: a corpus of more is estimated from a part of its pairs."""
_CODE_OF_TAG = re.compile(r"[^<>\s]{1,32}")


class Pair(NamedTuple):
    """A pair, and the tag before its source; empty where there is one target language."""

    source: str
    target: str
    tag: str


class Rows(NamedTuple):
    """Consecutive pairs, without tags, and the code of each one's target language; no codes where lines say none."""

    sources: list[str]
    targets: list[str]
    codes: list[str]
    left_out: int
    """What of the file makes no pair."""


@dataclass(kw_only=True, slots=True)
class Found:
    """What a corpus has."""

    num_pairs: int = 0
    num_blank: int = 0
    """Pairs without text on a side."""
    num_left_out: int = 0
    """What of the files makes no pair, such as units of a TMX with one of the languages alone."""
    num_bytes: int = 0
    num_repeats: int = 0
    """Pairs that repeat an earlier one; estimated beyond MOST_HASHES different ones."""
    codes: Counter[str] = field(default_factory=Counter)
    """Pairs by their target language, where lines say it."""
    sample: list[Pair] = field(default_factory=list)
    """Pairs drawn evenly from all, in a random order."""
    valid: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    most_uses: int = 1
    """How often the most frequent held-out sentence stands in the corpus."""
    is_tagged: bool = False
    """Whether pairs have a tag, as there are several target languages."""


def rows_of(parts: Sequence[Part]) -> Iterator[tuple[Part, Rows]]:
    """All pairs, some thousands at a time.

    Raises:
        UserError: a file is broken, empty or no text, its sides differ in length, or a line's language is no code.
    """
    first = dict[tuple[str, str | None], str]()
    for part in parts:
        extra = {} if part.language_field is None else {"language": part.language_field}
        for unit in corpus_units(part.files, ".", extra, (part.source_language or MULTIPLE, part.target_language)):
            for span, raw in unit.stream(0, 0, SPAN_PAIRS):
                left_out = sum(span.left_out.values())
                for chunk in raw.chunks(CHUNK_LINES):
                    sources, codes = chunk.sources, list[str]()
                    if part.language_field is not None:
                        codes = [code.strip() for code in chunk.extra["language"]]
                    elif part.is_tagged:
                        tags = list(map(TAGGED.match, sources))
                        codes = ["" if tag is None else tag[1] for tag in tags]
                        sources = [s if tag is None else s[tag.end() :] for s, tag in zip(sources, tags, strict=True)]
                    elif part.target_language != MULTIPLE:
                        codes = [part.target_language] * len(sources)
                    for row, code in enumerate(codes):
                        if not _CODE_OF_TAG.fullmatch(code):
                            raise UserError(
                                f"{chunk.where(row)}: {code!r} is no target language; write a code or a tag"
                            )
                    # of codes that mean the same, such as fr and fr-FR, the first
                    same = {code: first.setdefault(meaning(code), code) for code in dict.fromkeys(codes)}
                    yield part, Rows(sources, chunk.targets, [same[code] for code in codes], left_out)
                    left_out = 0


def look(parts: Sequence[Part]) -> Found:
    """Read the corpus twice: first for figures and candidates, then to count where the candidates' sentences stand.

    Raises:
        UserError: a file cannot be read, or there are too few pairs to hold any out.
    """
    found, sample, repeats = Found(), _Sample(), _Repeats()
    with Progress("reading") as progress:
        for number, (_, rows) in enumerate(rows_of(parts)):
            found.num_pairs += len(rows.sources)
            found.num_left_out += rows.left_out
            found.num_bytes += sum(len(line.encode()) for side in rows[:2] for line in side)
            found.num_blank += sum(not (s.strip() and t.strip()) for s, t in zip(*rows[:2], strict=True))
            found.codes.update(rows.codes)
            sample.add(rows, number)
            repeats.add(rows)
            progress.advance(len(rows.sources))
    found.num_repeats = repeats.number
    found.is_tagged = len(found.codes) > 1 or any(part.is_tagged for part in parts)
    found.sample = [pair if found.is_tagged else Pair(pair.source, pair.target, "") for pair in sample.finish()]
    if found.num_pairs - found.num_blank < LEAST_PAIRS:
        raise UserError(
            f"CORPUS: {found.num_pairs - found.num_blank} pairs with text on both sides are too few to hold some out; "
            f"give at least {LEAST_PAIRS}, or write a configuration by hand (docs/tutorials/own-corpus.md)"
        )
    _hold_out(found, parts)
    return found


def _hold_out(found: Found, parts: Sequence[Part]) -> None:
    """Choose the sets: at random among pairs whose sentences stand once in the corpus, else fewest times."""
    candidates = [(fold(pair.source), fold(pair.target), pair) for pair in found.sample]
    candidates = [(s, t, pair) for s, t, pair in candidates if s != t and t and any(map(str.isalpha, s))]
    uses = dict.fromkeys((side for *sides, _ in candidates for side in sides), 0)
    with Progress("reading again") as progress:
        for _, rows in rows_of(parts):
            for side in rows[:2]:
                for line in map(fold, side):
                    if line in uses:
                        uses[line] += 1
            progress.advance(len(rows.sources))
    ordered = sorted(((uses[s] + uses[t], s, t, pair) for s, t, pair in candidates), key=lambda one: one[0])
    wanted = min(MOST_SET, (found.num_pairs - found.num_blank) // PART_OF_SET)
    seen, chosen, cost = set[str](), list[Pair](), 0
    for number, source, target, pair in ordered:
        cost += number - 2
        if len(chosen) == 2 * wanted or cost > found.num_pairs // 10:
            break
        if source in seen or target in seen:
            continue
        seen |= {source, target}
        chosen.append(pair)
        found.most_uses = max(found.most_uses, uses[source], uses[target])
    size = len(chosen) // 2
    if size < LEAST_SET:
        raise UserError(
            f"CORPUS: of {found.num_pairs:,} pairs only {len(chosen)} have sentences that few others repeat, too few "
            "to hold some out; give more varied text, or sets of your own (docs/tutorials/own-corpus.md)"
        )
    found.valid, found.test = chosen[0 : 2 * size : 2], chosen[1 : 2 * size : 2]


def training_rows(found: Found, parts: Sequence[Part]) -> Iterator[Pair]:
    """The pairs without those that have a held-out sentence, whatever their languages, and without blank ones."""
    held_out = [*found.valid, *found.test]
    sentences = {fold(side) for pair in held_out for side in (pair.source, pair.target)}
    for _, rows in rows_of(parts):
        for number, (source, target) in enumerate(zip(*rows[:2], strict=True)):
            if source.strip() and target.strip() and sentences.isdisjoint((fold(source), fold(target))):
                yield Pair(source, target, rows.codes[number] if found.is_tagged else "")


class _Sample:
    """The pairs with the smallest random keys, which depend on their places alone."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, int, Pair]] = []
        self._highest = sys.maxsize

    def add(self, rows: Rows, number: int) -> None:
        keys = random_bits(len(rows.sources), SEED, Purpose.TOKENIZER_SAMPLE, number) >> np.uint64(1)
        for row in np.flatnonzero(keys < np.uint64(self._highest)).tolist():
            source, target = rows.sources[row].strip(), rows.targets[row].strip()
            if source and target and max(len(source), len(target)) <= LONGEST:
                code = rows.codes[row] if rows.codes else ""
                self._kept.append((int(keys[row]), number, row, Pair(source, target, code)))
        if len(self._kept) > 2 * SAMPLE_PAIRS:
            self.finish()
            self._highest = self._kept[-1][0]

    def finish(self) -> list[Pair]:
        """The sample so far, in the order of the keys."""
        self._kept = sorted(self._kept)[:SAMPLE_PAIRS]
        return [pair for *_, pair in self._kept]


class _Repeats:
    """Counts pairs that repeat earlier ones by hashes: of all, or of every 2nd, 4th ... where they become many."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._mask, self._repeats = 0, 0

    def add(self, rows: Rows) -> None:
        for source, target in zip(*rows[:2], strict=True):
            text = f"{source}\0{target}".encode()
            digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            if digest & self._mask:
                continue
            if digest in self._seen:
                self._repeats += 1
                continue
            self._seen.add(digest)
            if len(self._seen) > MOST_HASHES:
                self._mask = 2 * self._mask + 1
                before = len(self._seen)
                self._seen = {one for one in self._seen if not one & self._mask}
                self._repeats = self._repeats * len(self._seen) // before

    @property
    def number(self) -> int:
        """How many repeat an earlier one."""
        return self._repeats * (self._mask + 1)
