"""Scores broken down by sentence length, by how often words were seen in training, and by language pair."""

import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs import RunConfig, UserError
from configs.components import ScoredText, make
from configs.languages import same_language
from data_pipeline.prepared.dataset import Dataset
from zeromt.comparing.sets import SharedSet
from zeromt.evaluating.resampling import MetricScores, RunScore, confidence

NUM_LENGTHS = 5
"""Number of groups, each of about the same number of sentences."""
FREQUENCIES = (0, 1, 2, 5, 10, 100, 1000)
"""The smallest count of each group of words, as in compare-mt (Neubig et al., 2019)."""
COUNTED_PIECES = 2_000_000
"""Target pieces of the training data that are counted, in blocks spread evenly over it."""

Words = Callable[[str], list[str]]


@dataclass(kw_only=True, slots=True, frozen=True)
class Group:
    """Some of the sentences or words."""

    name: str
    size: int
    runs: Sequence[RunScore]


@dataclass(kw_only=True, slots=True, frozen=True)
class Breakdown:
    """A score by groups."""

    metric: str
    of: str
    """What the groups are made by."""
    head: str
    """The same in a word."""
    digits: int
    groups: Sequence[Group]


def words_of(language: str) -> Words:
    """A function that splits lines of a language into words, as BLEU does.

    Raises:
        UserError: its tokenizer is not installed.
    """
    scoring: Any = make("metric", "bleu").build(ScoredText(target_language=language))
    tokenize: Callable[[str], str] = scoring.tokenizer
    return lambda line: tokenize(line.rstrip()).split()


def by_length(
    shared: SharedSet, hypotheses: Sequence[Sequence[str]], words: Words, label: str, scoring: Any, samples: int
) -> Breakdown:
    """A sacreBLEU metric by the length of the first reference in words, in groups of about equal size."""
    references = [list(lines) for lines in shared.references]
    lengths = np.array([len(words(line)) for line in references[0]])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, NUM_LENGTHS + 1)[1:-1], method="lower"))
    groups = []
    for number in range(len(edges) + 1):
        rows = np.flatnonzero(np.searchsorted(edges, lengths) == number).tolist()
        if not rows:
            continue
        low, high = int(lengths[rows].min()), int(lengths[rows].max())
        chosen = [[column[i] for i in rows] for column in references]
        runs = [confidence(scoring, [lines[i] for i in rows], chosen, samples) for lines in hypotheses]
        groups.append(Group(name=f"{low}" if low == high else f"{low} to {high}", size=len(rows), runs=runs))
    return Breakdown(metric=label, of="words of the reference", head="words", digits=2, groups=groups)


def by_frequency(
    shared: SharedSet,
    hypotheses: Sequence[Sequence[str]],
    words: Words,
    counts: Mapping[str, int],
    where: str,
) -> Breakdown:
    """F1 of words by their frequency: the words of a translation are matched with those of the first reference.

    Args:
        shared: the set.
        hypotheses: of every run.
        words: see `words_of`.
        counts: how often each word occurs in the text that `where` names.
        where: the text in which they were counted.
    """
    references = [Counter(words(line)) for line in shared.references[0]]
    of_runs = [[Counter(words(line)) for line in lines] for lines in hypotheses]
    wanted = _by_group(counts, references)
    made = [_by_group(counts, lines) for lines in of_runs]
    both = [_by_group(counts, [a & b for a, b in zip(lines, references, strict=True)]) for lines in of_runs]
    groups = []
    for number, (low, high) in enumerate(zip(FREQUENCIES, (*FREQUENCIES[1:], None), strict=True)):
        if not wanted[number]:
            continue
        name = f"{low} or more" if high is None else f"{low}" if high == low + 1 else f"{low} to {high - 1}"
        runs = [RunScore(score=200 * b[number] / (wanted[number] + m[number])) for b, m in zip(both, made, strict=True)]
        groups.append(Group(name=name, size=wanted[number], runs=runs))
    return Breakdown(
        metric="F1 of words", of=f"times that a word stands in {where}", head="times", digits=2, groups=groups
    )


def training_words(config: RunConfig, language: str, words: Words) -> tuple[Counter[str], str] | None:
    """Word counts of the target side of a run's training data, and a name for it; None if the data are not at hand.

    Only datasets whose target is in the language are counted, if there are any. Of data with more than `COUNTED_PIECES`
    pieces, blocks spread evenly over it are counted, up to that number. Remote data are not fetched for this.
    """
    paths = [source.path for source in config.datasets]
    if any("://" in path for path in paths):
        return None
    counts: Counter[str] = Counter()
    is_whole = True
    try:
        datasets = [Dataset.load(path) for path in paths]
        datasets = [d for d in datasets if same_language(language, [d.target_language])] or datasets
        for dataset in datasets:
            step = max(1, -(-len(datasets) * dataset.index.target_tokens // COUNTED_PIECES))
            is_whole &= step == 1
            for number in range(0, dataset.index.blocks, step):
                block = dataset.read_block(number)
                ends = np.cumsum(block.lengths[:, 1].astype(np.int64))
                rows = [row.tolist() for row in np.split(block.target, ends[:-1])]
                for line in dataset.tokenizer.decode_target(rows):
                    counts.update(words(line))
    except (UserError, OSError):
        return None
    return counts, "the training data" if is_whole else "a sample of the training data"


def count_words(lines: Sequence[str], words: Words) -> Counter[str]:
    """How often each word occurs in some lines."""
    return Counter(word for line in lines for word in words(line))


def by_languages(
    sets: Sequence[SharedSet], scores: Sequence[Sequence[MetricScores]]
) -> dict[str, list[tuple[str, int, list[float | None]]]]:
    """Means over the sets of each pair of languages: label, digits and a mean for each run, by pair.

    Empty if there is only one pair.
    """
    pairs = list(dict.fromkeys(one.languages for one in sets))
    if len(pairs) < 2:
        return {}
    means: dict[str, list[tuple[str, int, list[float | None]]]] = {}
    for pair in pairs:
        of_pair = [columns for one, columns in zip(sets, scores, strict=True) if one.languages == pair]
        for column in zip(*of_pair, strict=True):
            rows = zip(*([run.score for run in metric.runs] for metric in column), strict=True)
            means.setdefault(pair, []).append((column[0].label, column[0].digits, [_mean(row) for row in rows]))
    return means


def _by_group(counts: Mapping[str, int], lines: Sequence[Mapping[str, int]]) -> list[int]:
    """How many words of each frequency group occur in some lines."""
    sizes = [0] * len(FREQUENCIES)
    for line in lines:
        for word, number in line.items():
            sizes[bisect.bisect_right(FREQUENCIES, counts.get(word, 0)) - 1] += number
    return sizes


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if len(known) == len(scores) else None
