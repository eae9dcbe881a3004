"""Gathers everything that is known of some runs, to compare them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs import EvaluationSection, HeldOutSection
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import while_they_last
from trainer.metrics.scoring import Scorer
from trainer.runs.course import Cost, read_cost
from zeromt.comparing import breakdown, curves, differences
from zeromt.comparing.breakdown import Breakdown
from zeromt.comparing.curves import Figure
from zeromt.comparing.hypotheses import How, translations
from zeromt.comparing.sentences import Sentence, differing
from zeromt.comparing.sets import SharedSet, shared_sets
from zeromt.comparing.subjects import Subject, load_subjects
from zeromt.evaluating.resampling import MetricScores, Samples, can_resample, score_set
from zeromt.evaluating.scoring import Wanted
from zeromt.evaluating.translation_cache import Hypotheses, plain_search
from zeromt.translating.command import search_section


@dataclass(kw_only=True, slots=True, frozen=True)
class Asked:
    """What is to be compared."""

    sets: Sequence[str | HeldOutSection] = ()
    """None: the sets that all runs have."""
    wanted: Wanted = field(default_factory=lambda: Wanted(metrics=None, tokenizer=None, lowercase=False))
    samples: Samples = field(default_factory=Samples)
    how: How = field(default_factory=How)
    sentences: int = 10
    """Sentences of each set to show."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Run:
    """A run, as it is displayed."""

    label: str
    path: str
    step: int | None
    checkpoint: str | None
    """SHA-256 of its manifest."""
    parent: str | None
    """The run that it began from (`--from`)."""
    search: Mapping[str, Any]
    cost: Cost


@dataclass(kw_only=True, slots=True, frozen=True)
class OfSet:
    """The results of one set."""

    name: str
    languages: str
    role: str
    pairs: int
    references: int
    files: Sequence[str | None]
    """Files with the translations of every run; None if they could not be kept."""
    scores: Sequence[MetricScores]
    breakdowns: Sequence[Breakdown]
    sentences: Sequence[Sentence]


@dataclass(kw_only=True, slots=True, frozen=True)
class Comparison:
    """A comparison of several runs, or a report of one."""

    runs: Sequence[Run]
    sets: Sequence[OfSet]
    language_pairs: Mapping[str, Sequence[tuple[str, int, Sequence[float | None]]]]
    configuration: differences.Rows
    data: differences.Rows
    figures: Sequence[Figure]
    samples: Samples
    notes: Sequence[str]


def compare(paths: Sequence[str], asked: Asked) -> Comparison:
    """Gather everything that is known of some runs; a note tells of what is not at hand.

    If a run that is still training deletes its checkpoint meanwhile, gathering starts again with its newest one.

    Args:
        paths: of runs or checkpoints; each further one is tested against the first.
        asked: what is to be compared.

    Raises:
        UserError: a path is not a run, a set that was asked for is not available, or a metric cannot be computed.
    """
    subjects: list[Subject] = []

    def choose() -> list[Checkpoint]:
        subjects[:] = load_subjects(paths)
        return [subject.checkpoint for subject in subjects if subject.checkpoint is not None]

    return while_they_last(choose, lambda _: _compare(subjects, asked))


def _compare(subjects: Sequence[Subject], asked: Asked) -> Comparison:
    notes = [f"{s.label}: not scored: {s.no_checkpoint}" for s in subjects if s.no_checkpoint is not None]
    shared: list[SharedSet] = []
    validated: list[dict[str, str]] = [{} for _ in subjects]
    if not notes:
        shared, notes, validated = shared_sets(subjects, asked.sets)
        if not shared:
            notes.append("nothing is scored: there is no set that every run is evaluated on; --set names one")
    hypotheses = translations(subjects, shared, asked.how) if shared else {}
    words = _TrainingWords(subjects[0])
    sets = [_of_set(one, hypotheses[one.name], subjects, asked, words) for one in shared]
    return Comparison(
        runs=[
            Run(
                label=subject.label,
                path=subject.path,
                step=subject.step,
                checkpoint=subject.checkpoint_hash,
                parent=subject.parent,
                search=plain_search(search_section(subject.config.evaluation.search, asked.how.search)),
                cost=read_cost(subject.folder, ranks=subject.ranks),
            )
            for subject in subjects
        ],
        sets=sets,
        language_pairs=breakdown.by_languages(shared, [one.scores for one in sets]),
        configuration=differences.configured(subjects),
        data=differences.data(subjects),
        figures=curves.read_curves(subjects, validated),
        samples=asked.samples,
        notes=list(dict.fromkeys(notes)),
    )


class _TrainingWords:
    """Words of a run's training data, counted once for each target language of the sets."""

    def __init__(self, subject: Subject) -> None:
        self._config = subject.config
        self._known: dict[str, tuple[Mapping[str, int], str] | None] = {}

    def of(self, language: str, words: breakdown.Words) -> tuple[Mapping[str, int], str] | None:
        """The counts, and a name for the text that was counted; None if it is not at hand."""
        if language not in self._known:
            self._known[language] = breakdown.training_words(self._config, language, words)
        return self._known[language]


def _of_set(
    shared: SharedSet,
    hypotheses: Sequence[Hypotheses],
    subjects: Sequence[Subject],
    asked: Asked,
    training: _TrainingWords,
) -> OfSet:
    """Score a set and break its scores down."""
    section: EvaluationSection = subjects[0].config.evaluation
    scorer = asked.wanted.scorer(section, shared.texts[0])
    lines = [list(one.lines) for one in hypotheses]
    return OfSet(
        name=shared.name,
        languages=shared.languages,
        role=shared.role,
        pairs=len(shared.sources),
        references=len(shared.references),
        files=[None if one.file is None else str(one.file) for one in hypotheses],
        scores=score_set(scorer, shared, lines, [subject.label for subject in subjects], asked.samples),
        breakdowns=_breakdowns(scorer, shared, lines, asked, training),
        sentences=differing(shared, lines, asked.sentences) if len(lines) > 1 else [],
    )


def _breakdowns(
    scorer: Scorer, shared: SharedSet, lines: Sequence[Sequence[str]], asked: Asked, training: _TrainingWords
) -> list[Breakdown]:
    """Breakdowns by length, for the first metric that can be resampled, and by word frequency."""
    words = breakdown.words_of(shared.texts[0].languages[1])
    tested = [metric for metric in scorer.metrics if can_resample(metric, scorer.scorings[metric.key()])]
    breakdowns = []
    for metric in tested[:1]:
        scoring = scorer.scorings[metric.key()]
        breakdowns.append(breakdown.by_length(shared, lines, words, metric.label(), scoring, asked.samples.bootstrap))
    counted = training.of(shared.texts[0].languages[1], words)
    if counted is None:
        counted = breakdown.count_words(shared.references[0], words), "the references, as the data are not at hand"
    counts, where = counted
    return [*breakdowns, breakdown.by_frequency(shared, lines, words, counts, where)]
