"""Text for benchmarks: given files, or synthetic sentences that are the same in every run.

Synthetic words consist of syllables; frequent words are short. Their frequencies follow the Zipf-Mandelbrot law (rank r
has weight 1 / (r + 2.7)). Sentence lengths are log-normal with a median of 18 words and a mean of 21, as in news (web
crawls have longer tails). The target side is drawn in the same way, with a length close to the source's. The sides are
not translations of each other, because the benchmarks only read, encode and store them.
"""

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BATCH_PAIRS = 65_536
"""Pairs are generated in batches of this size, so that a longer text starts with the same pairs as a shorter one."""
NUM_WORDS = 60_000
MEDIAN_WORDS, SIGMA, MAX_WORDS = 18, 0.6, 120
COMMA_FRACTION = 0.06

SOUNDS = (
    ("b,c,d,f,g,h,k,l,m,n,p,r,s,t,v,w,ch,th", "a,e,i,o,u,ea", ",,,n,s"),
    ("b,d,f,g,h,k,l,m,n,p,r,s,t,v,w,z,sch", "a,e,i,o,u,ä,é", ",,n,r,ß"),
)
"""Onsets, vowels and codas of syllables for source and target; the target has non-ASCII characters."""


@dataclass(frozen=True, slots=True)
class Text:
    """Parallel text in two files, plain or gzip."""

    name: str
    source: Path
    target: Path

    @property
    def sides(self) -> tuple[Path, Path]:
        """Both files."""
        return self.source, self.target


def read_lines(path: Path, count: int | None = None) -> list[str]:
    """The first `count` lines of a file (all by default), without line feeds."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        return [line.rstrip("\n") for line in islice(text, count)]


def generate(folder: Path, pairs: int, *, seed: int = 1) -> Text:
    """Write synthetic text of `pairs` pairs to a folder."""
    text = Text(f"generated-{pairs}", folder / f"{pairs}.source", folder / f"{pairs}.target")
    words = [_words(side, seed) for side in (0, 1)]
    with text.source.open("w", encoding="utf-8") as source, text.target.open("w", encoding="utf-8") as target:
        for number, first in enumerate(range(0, pairs, BATCH_PAIRS)):
            lines = _batch(words, seed, number)
            count = min(BATCH_PAIRS, pairs - first)
            source.writelines(islice(lines[0], count))
            target.writelines(islice(lines[1], count))
    return text


def head(text: Text, folder: Path, count: int) -> Text:
    """Copy the first `count` lines of a text."""
    copies = [folder / f"{text.name}.head.{side}" for side in ("source", "target")]
    for path, copy in zip(text.sides, copies, strict=True):
        copy.write_text("".join(f"{line}\n" for line in read_lines(path, count)), encoding="utf-8")
    return Text(f"{text.name}.head", *copies)


def _words(side: int, seed: int) -> NDArray[np.object_]:
    """(words,): the words of a side by rank; rarer words have more syllables."""
    rng = np.random.default_rng([seed, side])
    num_syllables = 0.5 + np.log10(np.arange(1, 4 * NUM_WORDS)) / 1.8 + rng.random(4 * NUM_WORDS - 1)
    begins, vowels, ends = (sounds.split(",") for sounds in SOUNDS[side])
    parts = [rng.integers(len(s), size=(len(num_syllables), 5)).tolist() for s in (begins, vowels, ends)]
    words: dict[str, None] = {}
    for number, *rows in zip(num_syllables.astype(int).clip(1).tolist(), *parts, strict=True):
        syllables = zip(*(row[:number] for row in rows), strict=True)
        words["".join(begins[b] + vowels[v] + ends[e] for b, v, e in syllables)] = None
    assert len(words) >= NUM_WORDS, f"{len(words)} words"
    return np.array(list(words)[:NUM_WORDS], dtype=object)


def _batch(words: list[NDArray[np.object_]], seed: int, number: int) -> list[Iterator[str]]:
    """The source and target lines of batch `number`."""
    rng = np.random.default_rng([seed, 2, number])
    lengths = MEDIAN_WORDS * np.exp(SIGMA * rng.standard_normal(BATCH_PAIRS))
    ratios = np.exp(0.05 + 0.15 * rng.standard_normal(BATCH_PAIRS))
    return [
        _lines(w, n.clip(1, MAX_WORDS).astype(np.int64), rng)
        for w, n in zip(words, (lengths, lengths * ratios), strict=True)
    ]


def _lines(words: NDArray[np.object_], lengths: NDArray[np.int64], rng: np.random.Generator) -> Iterator[str]:
    weights = np.cumsum(1 / (np.arange(1, len(words) + 1) + 2.7))
    count = int(lengths.sum())
    ranks = np.searchsorted(weights, rng.random(count) * weights[-1])
    with_comma = rng.random(count) < COMMA_FRACTION
    drawn = words[ranks]
    drawn[with_comma] += ","
    tokens: list[str] = drawn.tolist()
    ends = np.cumsum(lengths).tolist()
    return _sentences(tokens, ends)


def _sentences(tokens: list[str], ends: list[int]) -> Iterator[str]:
    first = 0
    for end in ends:
        sentence = " ".join(tokens[first:end])
        yield f"{sentence[0].upper()}{sentence[1:].rstrip(',')}.\n"
        first = end
